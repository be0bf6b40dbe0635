UPDATE ductwork_steps SET status = 'completed'
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'advancing'
