DELETE FROM ductwork_transitions WHERE from_step_id IN (
    SELECT s.id FROM unnest($1::uuid[]) AS b(id)
      JOIN ductwork_branches br ON br.run_id = b.id
      JOIN ductwork_steps s ON s.branch_id = br.id)
