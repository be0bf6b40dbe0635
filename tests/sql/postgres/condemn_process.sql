UPDATE ductwork_processes SET epoch = $1
 WHERE id = $2 AND ($3 = 1 OR (beat_seq = $4
       AND (last_heartbeat_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $5 OR last_heartbeat_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint)))
