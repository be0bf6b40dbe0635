DELETE FROM ductwork_advancements WHERE transition_id IN (
    SELECT t.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
      JOIN ductwork_branches br ON br.run_id = b.id
      JOIN ductwork_steps s ON s.branch_id = br.id
      JOIN ductwork_transitions t ON t.from_step_id = s.id)
