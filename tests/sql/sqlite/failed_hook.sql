SELECT s.via, (SELECT e.error_message FROM ductwork_executions e
                        WHERE e.step_id = s.id ORDER BY e.attempt DESC LIMIT 1) AS error_message
  FROM ductwork_branches b
  JOIN ductwork_steps s ON s.branch_id = b.id
 WHERE b.run_id = ?1 AND b.fan_out_id IS NULL AND s.via IN ('on_halt', 'on_complete')
   AND s.status = 'failed'
