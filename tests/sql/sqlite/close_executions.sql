UPDATE ductwork_executions
   SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = results.result, error_class = results.error_class,
       error_message = results.error_message, error_backtrace = results.error_backtrace
  FROM (SELECT c0 AS execution_id, c1 AS result, c2 AS error_class, c3 AS error_message, c4 AS error_backtrace, c5 AS step_id, c6 AS run_id, c7 AS branch_id, c8 AS step_status, c9 AS output, c10 AS ready, c11 AS ends, c12 AS transition_id, c13 AS via, c14 AS produced, c15 AS advancement_id, c16 AS claim_token, c17 AS next_step_id, c18 AS next_ordinal, c19 AS next_node, c20 AS next_step, c21 AS attempt_id, c22 AS attempt_step_id, c23 AS attempt, c24 AS retry_count, c25 AS crash_count, c26 AS leased, c27 AS due_in, c28 AS arrives_at FROM ductwork_rows(?1)) AS results
 WHERE ductwork_executions.id = results.execution_id
   AND ductwork_executions.process_id = ?2
   AND ductwork_executions.result IS NULL 
RETURNING ductwork_executions.id AS execution_id, completed_at AS moment, 0 AS last
