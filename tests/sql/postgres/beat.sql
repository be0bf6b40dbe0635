UPDATE ductwork_processes
   SET beat_seq = beat_seq + 1, last_heartbeat_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, claimed = $1,
       succeeded = $2, errored = $3, crashed = $4,
       advanced = $5, stale = $6, statements = $7, quiet = $8,
       worked_at = CASE WHEN claimed = $1 AND advanced = $5 THEN worked_at ELSE (extract(epoch from statement_timestamp()) * 1000000)::bigint END
 WHERE id = $9 RETURNING paused
