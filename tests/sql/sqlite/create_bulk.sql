INSERT INTO ductwork_bulks (id, verb, selection, definition, newest, dealt, done, skipped, failed, failures,
                            created_at, by_whom, channel)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0, '[]', CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?7, ?8)
