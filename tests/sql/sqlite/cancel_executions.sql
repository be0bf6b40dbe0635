UPDATE ductwork_executions SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = 'cancelled'
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_executions.id = b.id AND ductwork_executions.result IS NULL
RETURNING ductwork_executions.process_id AS process_id
