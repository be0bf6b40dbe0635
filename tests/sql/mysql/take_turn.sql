UPDATE ductwork_migrations SET name = ?, applied_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE version = 0 AND name = ? AND applied_at = ?
