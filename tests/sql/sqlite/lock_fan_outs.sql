SELECT id FROM ductwork_fan_outs
 WHERE id IN (SELECT b.id FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b) ORDER BY id 
