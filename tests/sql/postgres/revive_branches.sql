INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, output, last_advanced_at)
SELECT (left($1::uuid::text, 19) || substr(br.id::text, 20))::uuid, $1, br.pipeline, (left($1::uuid::text, 19) || substr(br.fan_out_id::text, 20))::uuid, br.ordinal,
       CASE br.status WHEN 'completed' THEN 'completed' ELSE 'waiting' END,
       (left($1::uuid::text, 19) || substr(br.step_id::text, 20))::uuid, br.output, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($2::uuid[]) AS c(id)
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[c.id])
