UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
   SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
 WHERE ductwork_branches.id = b.id AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
