UPDATE ductwork_tokens SET ended_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
 WHERE parent = ?1 AND ended_at IS NULL AND expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)
