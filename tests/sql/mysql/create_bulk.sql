INSERT INTO ductwork_bulks (id, verb, selection, definition, newest, dealt, done, skipped, failed, failures,
                            created_at, by_whom, channel)
VALUES (?, ?, ?, ?, ?, ?, 0, 0, 0, '[]', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?)
