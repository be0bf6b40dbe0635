UPDATE ductwork_executions SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = 'cancelled'
 WHERE ductwork_executions.id IN (SELECT c0 FROM ductwork_rows(?1)) AND result IS NULL
