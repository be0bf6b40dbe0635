SELECT id FROM ductwork_tokens
 WHERE kind IN ('link', 'session') AND expires_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 LIMIT ?2
