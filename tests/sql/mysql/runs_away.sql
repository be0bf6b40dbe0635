SELECT id FROM ductwork_runs WHERE id >= ? AND id < ?
 ORDER BY id DESC LIMIT 1 OFFSET ?
