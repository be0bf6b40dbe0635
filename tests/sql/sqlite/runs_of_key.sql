SELECT r.id, r.pipeline, r.definition, r.status, r.trigger_key, r.revived_from,
 CASE WHEN octet_length(r.input) <= ?1 THEN r.input END AS input,
 CASE WHEN octet_length(r.output) <= ?1 THEN r.output END AS output,
 CAST(octet_length(r.input) AS bigint) AS input_bytes,
 CAST(octet_length(r.output) AS bigint) AS output_bytes,
 r.triggered_at, r.completed_at, r.halted_at, r.cancelled_at, r.cancelling_at,
 coalesce((SELECT e.claimed_at FROM ductwork_executions e
            WHERE e.attempt = 1 AND e.step_id = (SELECT s.id
                                 FROM ductwork_branches b
                                 JOIN ductwork_steps s ON s.branch_id = b.id AND s.ordinal = 0
                                WHERE b.run_id = r.id AND b.fan_out_id IS NULL LIMIT 1)),
          CASE WHEN r.revived_from IS NOT NULL THEN r.triggered_at END) AS started_at
  FROM ductwork_runs r 
 WHERE r.pipeline = ?2 AND r.trigger_key = ?3
   AND r.triggered_at >= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?4
   AND r.id >= ?5 AND r.id < ?6 AND r.pruning_at IS NULL
 ORDER BY r.id DESC LIMIT ?7
