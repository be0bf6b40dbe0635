UPDATE ductwork_deliveries SET attempts = 0, due_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), state = 'waiting' WHERE id = ?
