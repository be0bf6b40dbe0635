UPDATE ductwork_branches SET ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
 WHERE ductwork_branches.id = b.id AND ductwork_branches.status = 'in_progress'
