UPDATE ductwork_executions
   SET process_id = NULL, claimed_at = NULL, lease_until = NULL
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_executions.id = ANY (ARRAY[b.id])
   AND ductwork_executions.process_id = $2
   AND ductwork_executions.result IS NULL
