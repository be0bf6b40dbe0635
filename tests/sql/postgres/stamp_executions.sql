UPDATE ductwork_executions
   SET process_id = $1, claimed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, lease_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $2
  FROM unnest($3::uuid[]) AS b(id)
 WHERE ductwork_executions.id = b.id
   AND ductwork_executions.process_id IS NULL
   AND ductwork_executions.completed_at IS NULL
