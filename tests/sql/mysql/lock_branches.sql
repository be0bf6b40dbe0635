SELECT br.id, br.claim_token FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS token FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b
  STRAIGHT_JOIN ductwork_branches br FORCE INDEX (PRIMARY) ON br.id = b.id AND br.claim_token = b.token
 ORDER BY br.id FOR UPDATE
