SELECT id FROM ductwork_departed WHERE gone_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 ORDER BY gone_at, id LIMIT ?2
