UPDATE ductwork_deliveries SET attempts = 0, due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), state = 'waiting' WHERE id = ?1
