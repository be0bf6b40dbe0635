UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_steps FORCE INDEX (PRIMARY)
   SET status = 'advancing', output = coalesce(?, input), completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
       answered_by = ?
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'waiting'
