DELETE FROM ductwork_actions
 WHERE at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 AND id IN (SELECT id FROM ductwork_actions ORDER BY id LIMIT ?2)
