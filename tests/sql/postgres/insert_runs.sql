INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at)
SELECT b.id, $1, $2, b.input, b.trigger_key, (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($3::uuid[], $4::text[], $5::text[]) AS b(id, input, trigger_key)
 WHERE true
ON CONFLICT (pipeline, trigger_key) WHERE trigger_key IS NOT NULL DO NOTHING
