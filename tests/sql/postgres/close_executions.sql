UPDATE ductwork_executions
   SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = b.result, error_class = b.error_class,
       error_message = b.error_message, error_backtrace = b.error_backtrace
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) AS b(id, result, error_class, error_message, error_backtrace)
 WHERE ductwork_executions.id = b.id
   AND ductwork_executions.process_id = $6
   AND ductwork_executions.completed_at IS NULL
RETURNING ductwork_executions.id AS id
