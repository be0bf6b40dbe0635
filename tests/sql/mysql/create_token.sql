INSERT INTO ductwork_tokens (id, kind, name, digest, scope, pipelines, created_at, created_by, expires_at, parent,
                             payloads)
VALUES (?, ?, ?, ?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?, ?, ?)
