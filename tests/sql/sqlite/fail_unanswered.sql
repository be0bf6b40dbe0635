UPDATE ductwork_steps SET status = 'failed', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'waiting'
