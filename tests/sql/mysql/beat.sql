UPDATE ductwork_processes
   SET beat_seq = beat_seq + 1, last_heartbeat_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
       worked_at = CASE WHEN claimed = ? AND advanced = ? THEN worked_at ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END,
       claimed = ?, succeeded = ?, errored = ?, crashed = ?,
       advanced = ?, stale = ?, statements = ?, quiet = ?
 WHERE id = ? AND epoch < 4294967296;
SELECT p.paused,
       EXISTS (SELECT 1 FROM ductwork_processes o
                WHERE o.boot_id <> p.boot_id OR o.pid_namespace <> p.pid_namespace) AS elsewhere
  FROM ductwork_processes p WHERE p.id = ? AND p.epoch < 4294967296;
