DELETE FROM ductwork_bulks
 WHERE ended_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 AND id IN (SELECT id FROM ductwork_bulks ORDER BY id LIMIT ?2)
