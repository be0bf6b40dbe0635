UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_advancements FORCE INDEX (ductwork_advancements_open) SET lease_until = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?
 WHERE ductwork_advancements.branch_id = b.id AND process_id = ? AND completed_at IS NULL AND ductwork_advancements.open_branch = b.id
