DELETE FROM ductwork_transitions WHERE from_step_id IN (
    SELECT s.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
      JOIN ductwork_branches br ON br.run_id = b.id
      JOIN ductwork_steps s ON s.branch_id = br.id)
