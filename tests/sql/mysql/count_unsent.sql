SELECT count(*) AS n
  FROM (SELECT d.id FROM ductwork_deliveries d
         WHERE d.endpoint = ? AND d.state = 'waiting' LIMIT ?) x
