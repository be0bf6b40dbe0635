SELECT r.id, r.pipeline, r.definition, r.status, r.input, r.output, r.trigger_key, r.revived_from,
 r.triggered_at, r.completed_at, r.halted_at, r.cancelled_at, r.cancelling_at,
 coalesce((SELECT min(e.claimed_at) FROM ductwork_executions e
            WHERE e.step_id = (SELECT s.id
                                 FROM ductwork_branches b
                                 JOIN ductwork_steps s ON s.branch_id = b.id AND s.ordinal = 0
                                WHERE b.run_id = r.id AND b.fan_out_id IS NULL LIMIT 1)),
          CASE WHEN r.revived_from IS NOT NULL THEN r.triggered_at END) AS started_at
  FROM ductwork_runs r 
 WHERE r.status <> 'completed' AND r.status = $1 AND r.pipeline = $2
   AND r.triggered_at >= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $3
   AND r.id >= $4 AND r.id < $5 AND r.pruning_at IS NULL
 ORDER BY r.id DESC LIMIT $6
