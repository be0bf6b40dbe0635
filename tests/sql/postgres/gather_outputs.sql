UPDATE ductwork_branches
   SET output = (SELECT '[' || coalesce(string_agg(coalesce(c.output, s.output), ',' ORDER BY c.ordinal), '') || ']'
                   FROM ductwork_branches c JOIN ductwork_steps s ON s.id = ANY (ARRAY[c.step_id])
                  WHERE c.fan_out_id = b.fan_out_id)
  FROM unnest($1::uuid[], $2::uuid[]) AS b(id, fan_out_id)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id])
