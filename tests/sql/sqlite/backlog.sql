SELECT count(*) AS n FROM (
    SELECT 1 FROM ductwork_availabilities
     WHERE pipeline = ?1 AND due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) LIMIT ?2) x
