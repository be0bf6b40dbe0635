SELECT r.id, substr(r.kind, 1, 1000) AS kind, r.at, r.ok, substr(r.figures, 1, 100000) AS figures
  FROM ductwork_reports r WHERE r.kind = ? AND r.id < ?
 ORDER BY r.kind DESC, r.id DESC LIMIT ?
