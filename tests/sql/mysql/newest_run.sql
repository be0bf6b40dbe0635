SELECT r.id FROM ductwork_runs r ORDER BY r.id DESC LIMIT 1
