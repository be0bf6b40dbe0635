INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT held.attempt_id, ?1,
       coalesce(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + held.due_in,
                (SELECT CASE WHEN min(a.due_at) < CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = ?1),
                CAST(unixepoch('subsec') * 1000000 AS INTEGER))
  FROM (SELECT c0 AS execution_id, c1 AS result, c2 AS error_class, c3 AS error_message, c4 AS error_backtrace, c5 AS step_id, c6 AS run_id, c7 AS branch_id, c8 AS step_status, c9 AS output, c10 AS ready, c11 AS ends, c12 AS transition_id, c13 AS via, c14 AS produced, c15 AS advancement_id, c16 AS claim_token, c17 AS next_step_id, c18 AS next_ordinal, c19 AS next_node, c20 AS next_step, c21 AS attempt_id, c22 AS attempt_step_id, c23 AS attempt, c24 AS retry_count, c25 AS crash_count, c26 AS leased, c27 AS due_in, c28 AS arrives_at, c29 AS last FROM ductwork_rows(?2)) AS held WHERE held.attempt_id IS NOT NULL AND held.leased = 0
