UPDATE ductwork_processes SET trouble = ?1, troubled_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2 WHERE id = ?3
