UPDATE ductwork_executions SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = 'cancelled'
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_executions.id = ANY (ARRAY[b.id]) AND ductwork_executions.result IS NULL
RETURNING ductwork_executions.process_id AS process_id
