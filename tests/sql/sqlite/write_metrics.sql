UPDATE ductwork_metrics SET written_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), body = ?1 WHERE process_id = ?2
