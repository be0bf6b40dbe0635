SELECT br.id, br.status, br.step_id, br.fan_out_id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  STRAIGHT_JOIN ductwork_branches br FORCE INDEX (PRIMARY) ON br.id = b.id
 WHERE br.status IN ('in_progress', 'advancing', 'waiting', 'dampened')
 ORDER BY br.id FOR UPDATE;
