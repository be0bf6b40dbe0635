INSERT INTO ductwork_departed (id, role, pipeline, host, pid, version, started_at, gone_at, death)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?8)
ON CONFLICT (id) DO NOTHING
