UPDATE ductwork_bulks SET ended_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), stopped_by = ?1 WHERE id = ?2 AND ended_at IS NULL
