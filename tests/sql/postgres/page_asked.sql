SELECT s.run_id, r.pipeline, r.definition, s.id, s.node, s.created_at, (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now,
       CAST(octet_length(s.input) AS bigint) AS input_size, CASE WHEN octet_length(s.input) <= $1 THEN s.input END AS input,
       d.answer_by, d.unanswered, br.ordinal AS place, f.width, f.via
  FROM ductwork_steps s 
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[s.run_id])
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[s.branch_id])
  LEFT JOIN ductwork_fan_outs f ON f.id = ANY (ARRAY[br.fan_out_id])
  LEFT JOIN ductwork_deadlines d ON d.branch_id = ANY (ARRAY[s.branch_id])
 WHERE s.run_id = ANY ($2::uuid[]) AND s.via = 'dampen' AND s.status = 'waiting'
   AND (s.run_id > $3 OR s.run_id = $3 AND s.id > $4)
 ORDER BY s.run_id, s.id LIMIT $5
