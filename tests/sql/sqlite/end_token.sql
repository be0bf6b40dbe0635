UPDATE ductwork_tokens SET ended_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) WHERE id = ?1 AND ended_at IS NULL
