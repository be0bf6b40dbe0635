UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE id = ? AND epoch <= ?;
SELECT id, last_heartbeat_at AS moment, paused FROM ductwork_processes
 WHERE id = ? AND epoch <= ?;
