UPDATE ductwork_executions
   SET process_id = NULL, claimed_at = NULL, lease_until = NULL
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_executions.id = b.id
   AND ductwork_executions.process_id = ?2
   AND ductwork_executions.result IS NULL
