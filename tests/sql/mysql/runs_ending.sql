SELECT id FROM ductwork_runs
 WHERE id >= ? AND id < ?
   AND (LOWER(HEX(id)) LIKE '%' || ? OR substr(LOWER(HEX(id)), 25) LIKE ? || '%')
 ORDER BY id DESC LIMIT ?
