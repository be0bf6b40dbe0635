UPDATE ductwork_executions SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = 'cancelled'
 WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) AND result IS NULL
RETURNING process_id
