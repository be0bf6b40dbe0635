SELECT x.id
  FROM (SELECT br.id FROM ductwork_branches br WHERE br.run_id = ? LIMIT ?) x
 WHERE x.id > ? ORDER BY x.id LIMIT ?
