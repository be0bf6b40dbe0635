UPDATE ductwork_steps SET status = 'failed', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
 WHERE status = 'waiting' AND id IN (SELECT b.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b)
