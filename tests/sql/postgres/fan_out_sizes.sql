SELECT b.id, CAST(sum(octet_length(coalesce(c.output, s.output))) + count(*) + 1 AS bigint) AS size
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_branches c  ON c.fan_out_id = ANY (ARRAY[b.id])
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[c.step_id])
 GROUP BY b.id
