SELECT br.id, br.run_id, br.pipeline, br.fan_out_id, br.ordinal, br.step_id,
       s.ordinal AS step_ordinal, s.node, r.definition
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = br.step_id
  JOIN ductwork_runs r ON r.id = br.run_id
 WHERE br.id IN (SELECT b.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND br.status = 'waiting'
