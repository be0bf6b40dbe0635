INSERT INTO ductwork_duties (name, holder, until) VALUES (?, ?, 0) ON DUPLICATE KEY UPDATE name = ductwork_duties.name
