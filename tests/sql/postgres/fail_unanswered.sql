UPDATE ductwork_steps SET status = 'failed', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_steps.id = ANY (ARRAY[b.id]) AND ductwork_steps.status = 'waiting'
