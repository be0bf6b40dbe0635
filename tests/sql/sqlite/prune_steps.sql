DELETE FROM ductwork_steps WHERE branch_id IN (
    SELECT br.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b JOIN ductwork_branches br ON br.run_id = b.id)
