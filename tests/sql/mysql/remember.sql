INSERT INTO ductwork_departed (id, role, pipeline, host, pid, version, started_at, gone_at, death)
VALUES (?, ?, ?, ?, ?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?)
ON DUPLICATE KEY UPDATE id = ductwork_departed.id
