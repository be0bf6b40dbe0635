SELECT a.branch_id AS id, a.claim_token FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  STRAIGHT_JOIN ductwork_advancements a FORCE INDEX (ductwork_advancements_open) ON a.open_branch = b.id
 WHERE a.process_id = ? AND a.completed_at IS NULL
 ORDER BY a.branch_id FOR UPDATE;
