UPDATE (SELECT b.id, CONCAT('[', coalesce(group_concat(coalesce(c.output, s.output) ORDER BY c.ordinal SEPARATOR ','), ''), ']') AS value
          FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS fan_out_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b
          LEFT JOIN ductwork_branches c FORCE INDEX (ductwork_branches_places) ON c.fan_out_id = b.fan_out_id
          LEFT JOIN ductwork_steps s ON s.id = c.step_id
         GROUP BY b.id) gathered
       STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
   SET ductwork_branches.output = gathered.value
 WHERE ductwork_branches.id = gathered.id;
