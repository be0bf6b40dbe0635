SELECT 1 AS found FROM ductwork_metrics m
 WHERE m.process_id <> ?
   AND NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE p.id = m.process_id) LIMIT 1
