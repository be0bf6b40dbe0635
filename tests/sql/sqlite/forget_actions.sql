DELETE FROM ductwork_actions
 WHERE id IN (SELECT id FROM ductwork_actions
               WHERE id < ?1 AND at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2 ORDER BY id LIMIT ?3)
