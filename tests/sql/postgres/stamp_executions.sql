UPDATE ductwork_executions
   SET process_id = $1, claimed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, lease_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $2
  FROM unnest($3::uuid[]) AS taken(id)
 WHERE ductwork_executions.id = taken.id
   AND ductwork_executions.process_id IS NULL
   AND ductwork_executions.result IS NULL
