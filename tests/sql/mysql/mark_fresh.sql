INSERT INTO ductwork_migrations (version, name, applied_at)
VALUES (?, 'a copy that is not complete', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
