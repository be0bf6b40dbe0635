SELECT id FROM ductwork_tokens
 WHERE kind IN ('link', 'session') AND expires_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? LIMIT ?
