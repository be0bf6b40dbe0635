INSERT INTO ductwork_tokens (id, kind, name, digest, scope, pipelines, created_at, created_by, expires_at, parent,
                             payloads)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?7, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?8, ?9, ?10)
