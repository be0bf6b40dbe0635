UPDATE (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS token FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY) SET last_advanced_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_branches.id = b.id AND ductwork_branches.claim_token = b.token
