SELECT b.id, CAST(sum(octet_length(coalesce(c.output, s.output))) + count(*) + 1 AS SIGNED) AS size
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_branches c FORCE INDEX (ductwork_branches_places) ON c.fan_out_id = b.id
  JOIN ductwork_steps s ON s.id = c.step_id
 GROUP BY b.id
