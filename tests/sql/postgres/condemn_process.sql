UPDATE ductwork_processes SET epoch = 4294967296
 WHERE id = $1 AND ($2 = 1 OR (beat_seq = $3
       AND (last_heartbeat_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $4 OR last_heartbeat_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint)))
