SELECT r.id, r.pruning_at FROM ductwork_runs r
 WHERE r.pruning_at IS NOT NULL AND r.pruning_at >= ?1
   AND (r.pruning_at, r.id) > (?1, ?2)
   AND NOT EXISTS (SELECT 1 FROM ductwork_runs n WHERE n.revived_from = r.id)
   AND (r.status = 'cancelled' OR NOT EXISTS (
        SELECT 1 FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id AND s.via IN ('on_halt', 'on_complete')
          JOIN ductwork_executions e ON e.step_id = s.id AND e.result IS NULL
         WHERE br.run_id = r.id AND br.fan_out_id IS NULL))
 ORDER BY r.pruning_at, r.id LIMIT ?3 
