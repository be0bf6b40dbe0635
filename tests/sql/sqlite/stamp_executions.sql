UPDATE ductwork_executions
   SET process_id = ?1, claimed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), lease_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2
  FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS taken
 WHERE ductwork_executions.id = taken.id
   AND ductwork_executions.process_id IS NULL
   AND ductwork_executions.result IS NULL
