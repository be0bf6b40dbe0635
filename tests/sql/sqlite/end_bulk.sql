UPDATE ductwork_bulks SET ended_at = coalesce(ended_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) WHERE id = ?1 AND failures = ?2
