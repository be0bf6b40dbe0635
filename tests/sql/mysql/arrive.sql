UPDATE (SELECT UNHEX(j.c0) AS id, j.c1 AS arriving, j.c2 AS halting FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]', c2 bigint PATH '$[2]')) AS j) AS b STRAIGHT_JOIN ductwork_fan_outs FORCE INDEX (PRIMARY)
   SET fired_at = CASE WHEN arrived + b.arriving = width THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END,
       arrived = arrived + b.arriving, halted = halted + b.halting
 WHERE ductwork_fan_outs.id = b.id;
SELECT f.id, f.width, f.arrived, f.halted, f.branch_id
  FROM (SELECT UNHEX(j.c0) AS id, j.c1 AS arriving, j.c2 AS halting FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]', c2 bigint PATH '$[2]')) AS j) AS b STRAIGHT_JOIN ductwork_fan_outs f ON f.id = b.id;
