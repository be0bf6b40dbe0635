DELETE FROM ductwork_availabilities
 WHERE execution_id IN (SELECT b.id FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b)
