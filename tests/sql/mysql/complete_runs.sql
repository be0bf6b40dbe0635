UPDATE (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS branch_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b STRAIGHT_JOIN ductwork_runs FORCE INDEX (PRIMARY)
   SET status = 'completed', completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
       output = (SELECT coalesce(br.output, s.output)
                   FROM ductwork_branches br JOIN ductwork_steps s ON s.id = br.step_id
                  WHERE br.id = b.branch_id)
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
