SELECT x.id
  FROM (SELECT br.id FROM ductwork_branches br WHERE br.run_id = ?1 LIMIT ?2) x
 WHERE x.id > ?3 ORDER BY x.id LIMIT ?4
