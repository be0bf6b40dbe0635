UPDATE ductwork_executions SET lease_until = lease_until + 1
 WHERE id = ? AND process_id = ? AND completed_at IS NULL
