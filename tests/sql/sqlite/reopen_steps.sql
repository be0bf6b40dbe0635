UPDATE ductwork_steps SET status = 'advancing'
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'completed'
