SELECT execution_id AS id, due_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - due_at AS waited FROM ductwork_availabilities
 WHERE pipeline = ? AND due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND due_at >= ? AND (due_at > ? OR execution_id > ?)
 ORDER BY due_at, execution_id LIMIT ? FOR UPDATE SKIP LOCKED
;
