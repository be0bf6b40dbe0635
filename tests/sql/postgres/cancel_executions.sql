UPDATE ductwork_executions SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = 'cancelled'
 WHERE ductwork_executions.id = ANY ($1::uuid[]) AND result IS NULL
