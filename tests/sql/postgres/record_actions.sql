INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, made_run, bulk_id)
SELECT b.id, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $1, $2, $3, r.pipeline, r.id, CAST($4 AS uuid), CAST($5 AS uuid)
  FROM unnest($6::uuid[], $7::uuid[]) AS b(id, run) JOIN ductwork_runs r ON r.id = ANY (ARRAY[b.run])
