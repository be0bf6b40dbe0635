UPDATE (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS fan_out_id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b STRAIGHT_JOIN ductwork_branches
   SET output = (SELECT CONCAT('[', coalesce(group_concat(coalesce(c.output, s.output) ORDER BY c.ordinal SEPARATOR ','), ''), ']')
                   FROM ductwork_branches c JOIN ductwork_steps s ON s.id = c.step_id
                  WHERE c.fan_out_id = b.fan_out_id)
 WHERE ductwork_branches.id = b.id
