UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
 WHERE id = ?1 AND epoch <= ?2
