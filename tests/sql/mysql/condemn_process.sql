UPDATE ductwork_processes SET epoch = ?
 WHERE id = ? AND (? = 1 OR (beat_seq = ?
       AND (last_heartbeat_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? OR last_heartbeat_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))))
