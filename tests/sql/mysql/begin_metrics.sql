INSERT INTO ductwork_metrics (process_id, written_at, body) VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?)
ON DUPLICATE KEY UPDATE process_id = ductwork_metrics.process_id
