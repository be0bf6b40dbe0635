SELECT count(*) AS n
  FROM (SELECT d.id FROM ductwork_deliveries d
         WHERE d.endpoint = ?1 AND d.state = 'waiting' LIMIT ?2) x
