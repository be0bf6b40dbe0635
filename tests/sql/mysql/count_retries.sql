UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_transitions FORCE INDEX (PRIMARY) SET retry_count = retry_count + 1
 WHERE ductwork_transitions.id = b.id AND completed_at IS NULL
