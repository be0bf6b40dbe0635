UPDATE ductwork_steps SET status = 'failed', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'in_progress'
