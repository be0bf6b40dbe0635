SELECT count(*) AS n FROM ductwork_availabilities
 WHERE pipeline = ?1 AND due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
