UPDATE ductwork_executions
   SET process_id = ?1, claimed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), lease_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?3)) AS b
 WHERE ductwork_executions.id = b.id
   AND ductwork_executions.process_id IS NULL
   AND ductwork_executions.completed_at IS NULL
