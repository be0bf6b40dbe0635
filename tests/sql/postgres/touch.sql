UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
 WHERE id = $1 AND epoch <= $2
