DELETE FROM ductwork_steps WHERE branch_id IN (
    SELECT br.id FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_branches br ON br.run_id = b.id)
