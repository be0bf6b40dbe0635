UPDATE (SELECT UNHEX(j.c0) AS id, j.c1 AS n FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 bigint PATH '$[1]')) AS j) AS b STRAIGHT_JOIN ductwork_runs FORCE INDEX (PRIMARY)
   SET status = CASE WHEN dampened = b.n THEN 'in_progress' ELSE 'dampened' END,
       dampened = dampened - b.n
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') = 'dampened'
