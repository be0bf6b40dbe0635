SELECT m.process_id, m.body FROM ductwork_metrics m
 WHERE m.process_id <> $1
   AND NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE p.id = ANY (ARRAY[m.process_id]))
 ORDER BY m.process_id LIMIT $2 FOR NO KEY UPDATE
