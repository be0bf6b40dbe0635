SELECT r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from,
 CASE WHEN octet_length(r.input) <= ? THEN r.input END AS input,
 CASE WHEN octet_length(r.output) <= ? THEN r.output END AS output,
 CAST(octet_length(r.input) AS SIGNED) AS input_bytes,
 CAST(octet_length(r.output) AS SIGNED) AS output_bytes,
 r.triggered_at, r.completed_at, r.halted_at, r.cancelled_at, r.cancelling_at,
 coalesce((SELECT e.claimed_at FROM ductwork_executions e
            WHERE e.attempt = 1 AND e.step_id = (SELECT s.id
                                 FROM ductwork_branches b
                                 JOIN ductwork_steps s ON s.branch_id = b.id AND s.ordinal = 0
                                WHERE b.run_id = r.id AND b.fan_out_id IS NULL LIMIT 1)),
          CASE WHEN r.revived_from IS NOT NULL THEN r.triggered_at END) AS started_at
  FROM ductwork_runs r FORCE INDEX (ductwork_runs_trigger_key)
 WHERE r.pipeline = ? AND r.trigger_key = ?
   AND r.triggered_at >= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
   AND r.id >= ? AND r.id < ? AND r.pruning_at IS NULL
 ORDER BY r.id DESC LIMIT ?
