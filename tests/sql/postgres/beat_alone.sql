UPDATE ductwork_processes
   SET beat_seq = beat_seq + 1, last_heartbeat_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint,
       worked_at = CASE WHEN claimed = $1 AND advanced = $2 THEN worked_at ELSE (extract(epoch from statement_timestamp()) * 1000000)::bigint END,
       claimed = $1, succeeded = $3, errored = $4, crashed = $5,
       advanced = $2, stale = $6, statements = $7, quiet = $8
 WHERE id = $9 AND epoch < 4294967296
