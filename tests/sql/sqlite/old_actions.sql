SELECT x.id FROM (SELECT a.id, a.at FROM ductwork_actions a ORDER BY a.id LIMIT ?1) x
 WHERE x.at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2
