UPDATE (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS branch_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b STRAIGHT_JOIN ductwork_advancements FORCE INDEX (ductwork_advancements_open) SET result = 'success', completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_advancements.branch_id = b.branch_id
   AND ductwork_advancements.id = b.id AND ductwork_advancements.completed_at IS NULL AND ductwork_advancements.open_branch = b.branch_id
