SELECT s.id, t.id AS transition_id, CAST(CASE s.via WHEN 'on_wait' THEN 1 ELSE 0 END AS SIGNED) AS about_wait
  FROM ductwork_steps s
  LEFT JOIN ductwork_transitions t ON t.from_step_id = s.id
 WHERE s.branch_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b)
