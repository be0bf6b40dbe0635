SELECT id FROM ductwork_runs WHERE id >= ?1 AND id < ?2
 ORDER BY id DESC LIMIT 1 OFFSET ?3
