UPDATE ductwork_steps SET status = b.status, output = b.output, completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, value->>1 AS status, value->>2 AS output FROM json_each(?1)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'in_progress'
