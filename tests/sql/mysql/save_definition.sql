INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
VALUES (?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE digest = ductwork_definitions.digest
