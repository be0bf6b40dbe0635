INSERT INTO ductwork_reports (id, kind, at, ok, figures) VALUES (?1, ?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?3, ?4)
