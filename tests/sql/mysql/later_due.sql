SELECT execution_id AS id, due_at FROM ductwork_availabilities
 WHERE pipeline = ? AND due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 ORDER BY due_at, execution_id LIMIT 1 OFFSET ?
