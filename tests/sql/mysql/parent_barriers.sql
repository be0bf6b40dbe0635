SELECT br.id, br.fan_out_id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_branches br FORCE INDEX (PRIMARY) ON br.id = b.id
  STRAIGHT_JOIN ductwork_steps s FORCE INDEX (PRIMARY) ON s.id = br.step_id
  STRAIGHT_JOIN ductwork_runs r FORCE INDEX (PRIMARY) ON r.id = br.run_id;
