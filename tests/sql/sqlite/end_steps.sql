UPDATE ductwork_steps SET status = b.status, output = b.output, completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS status, c2 AS output FROM ductwork_rows(?1)) AS b
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'in_progress'
