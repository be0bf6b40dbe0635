SELECT br.id FROM ductwork_branches br
 WHERE br.id IN (SELECT b.id FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b) ORDER BY br.id 
