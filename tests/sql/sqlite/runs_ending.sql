SELECT id FROM ductwork_runs
 WHERE id >= ?1 AND id < ?2
   AND (lower(hex(id)) LIKE '%' || ?3 OR substr(lower(hex(id)), 25) LIKE ?3 || '%')
 ORDER BY id DESC LIMIT ?4
