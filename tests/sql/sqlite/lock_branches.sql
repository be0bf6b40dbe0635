SELECT br.id, br.claim_token FROM (SELECT c0 AS id, c1 AS token FROM ductwork_rows(?1)) AS b
  JOIN ductwork_branches br ON br.id = b.id AND br.claim_token = b.token
 ORDER BY br.id 
