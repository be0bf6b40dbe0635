INSERT INTO ductwork_duties (name, holder, until) VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3)
ON CONFLICT (name) DO UPDATE SET holder = ?2, until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?3
 WHERE ductwork_duties.holder = ?2 OR ductwork_duties.until <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) OR ductwork_duties.until > CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?4
