SELECT id FROM ductwork_executions
 WHERE process_id = ? AND completed_at IS NULL AND holder = ? ORDER BY id FOR UPDATE
