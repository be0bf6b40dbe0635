WITH
touched AS (
    UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
     WHERE id = $1 AND epoch <= $2
    RETURNING id, last_heartbeat_at AS moment, paused),
taken AS (
    WITH due AS MATERIALIZED (
        SELECT execution_id FROM ductwork_availabilities
         WHERE pipeline = $3 AND due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
           AND (due_at, execution_id) > ($4, $5)
           AND EXISTS (SELECT 1 FROM touched WHERE coalesce(paused, 0) = 0)
         ORDER BY due_at, execution_id LIMIT $6 FOR UPDATE SKIP LOCKED)
    DELETE FROM ductwork_availabilities
     WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM due))
    RETURNING execution_id AS id, due_at),
stamped AS (
    UPDATE ductwork_executions
       SET process_id = $1, claimed_at = (SELECT moment FROM touched),
           lease_until = (SELECT moment FROM touched) + $7
      FROM taken
     WHERE ductwork_executions.id = ANY (ARRAY[taken.id])
       AND ductwork_executions.process_id IS NULL
       AND ductwork_executions.result IS NULL
    RETURNING ductwork_executions.id AS id, step_id, attempt, retry_count, crash_count,
              (SELECT moment FROM touched) - taken.due_at AS waited)
SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count,
       s.run_id, s.branch_id, s.ordinal AS step_ordinal, s.node, s.step, s.via,
       CASE WHEN octet_length(s.input) <= 16384 THEN s.input END AS input,
       CAST(octet_length(s.input) AS bigint) AS size,
       br.fan_out_id, br.ordinal, r.definition, r.trace_parent, r.trace_state, r.baggage, e.waited,
       touched.paused,
       (SELECT max(due_at) FROM taken) AS last_due_at,
       (SELECT id FROM taken ORDER BY due_at DESC, id DESC LIMIT 1) AS last_id,
       1 / (CASE WHEN (SELECT count(*) FROM stamped) = (SELECT count(*) FROM taken)
                 THEN 1 ELSE 0 END) AS whole
  FROM touched
  LEFT JOIN (stamped e
        JOIN ductwork_steps s ON s.id = ANY (ARRAY[e.step_id])
        JOIN ductwork_branches br ON br.id = ANY (ARRAY[s.branch_id])
        JOIN ductwork_runs r ON r.id = ANY (ARRAY[s.run_id])) ON true
 ORDER BY e.id
