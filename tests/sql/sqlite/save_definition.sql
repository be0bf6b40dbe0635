INSERT INTO ductwork_definitions (digest, pipeline, body, created_at)
VALUES (?1, ?2, ?3, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (digest) DO NOTHING
