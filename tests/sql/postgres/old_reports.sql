SELECT r.id FROM ductwork_reports r WHERE r.kind = $1
 ORDER BY r.kind DESC, r.id DESC LIMIT $2 OFFSET $3
