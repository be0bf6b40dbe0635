DELETE FROM ductwork_executions WHERE step_id IN (
    SELECT s.id FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
      JOIN ductwork_branches br ON br.run_id = b.id
      JOIN ductwork_steps s ON s.branch_id = br.id)
