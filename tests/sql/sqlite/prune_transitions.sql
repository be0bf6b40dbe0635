DELETE FROM ductwork_transitions WHERE branch_id IN (
    SELECT br.id FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b JOIN ductwork_branches br ON br.run_id = b.id)
