UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE id = ? AND epoch <= ? AND coalesce(paused, 0) = 0
