UPDATE ductwork_branches
   SET output = (SELECT '[' || coalesce(group_concat(coalesce(c.output, s.output), ',' ORDER BY c.ordinal), '') || ']'
                   FROM ductwork_branches c JOIN ductwork_steps s ON s.id = c.step_id
                  WHERE c.fan_out_id = b.fan_out_id)
  FROM (SELECT c0 AS id, c1 AS fan_out_id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id
