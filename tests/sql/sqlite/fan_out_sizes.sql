SELECT b.id, CAST(sum(octet_length(coalesce(c.output, s.output))) + count(*) + 1 AS bigint) AS size
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
  JOIN ductwork_branches c  ON c.fan_out_id = b.id
  JOIN ductwork_steps s ON s.id = c.step_id
 GROUP BY b.id
