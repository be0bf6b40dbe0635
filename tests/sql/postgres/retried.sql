SELECT s.node, count(*) AS n
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
  JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt > 1
 WHERE br.run_id = $1
 GROUP BY s.node
