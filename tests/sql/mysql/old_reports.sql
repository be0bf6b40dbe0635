SELECT r.id FROM ductwork_reports r WHERE r.kind = ?
 ORDER BY r.kind DESC, r.id DESC LIMIT ? OFFSET ?
