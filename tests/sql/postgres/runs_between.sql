SELECT id FROM ductwork_runs WHERE id >= $1 AND id <= $2 ORDER BY id LIMIT 2
