UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_runs FORCE INDEX (PRIMARY) SET revivals = revivals + 1
 WHERE ductwork_runs.id = b.id AND ductwork_runs.pruning_at IS NULL
