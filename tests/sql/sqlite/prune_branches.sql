DELETE FROM ductwork_branches WHERE run_id IN (SELECT b.id FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b)
