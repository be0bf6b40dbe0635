UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_transitions FORCE INDEX (ductwork_transitions_open) SET crash_count = crash_count + 1
 WHERE ductwork_transitions.branch_id = b.id
   AND ductwork_transitions.completed_at IS NULL AND ductwork_transitions.open_branch = b.id
