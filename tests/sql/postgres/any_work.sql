SELECT (SELECT r.id FROM ductwork_runs r
         WHERE r.status <> 'completed' AND r.status = 'in_progress'
           AND ($1 = 1 OR r.pipeline IN (SELECT b.name FROM unnest($2::text[]) AS b(name))) LIMIT 1) AS run_id
 WHERE EXISTS (
    SELECT 1 FROM ductwork_runs r
     WHERE r.status <> 'completed' AND r.status = 'in_progress'
       AND ($1 = 1 OR r.pipeline IN (SELECT b.name FROM unnest($2::text[]) AS b(name))))
OR EXISTS (
    SELECT 1 FROM ductwork_availabilities a
     WHERE a.pipeline >= '' AND ($1 = 1 OR a.pipeline IN (SELECT b.name FROM unnest($2::text[]) AS b(name))))
OR EXISTS (
    SELECT 1 FROM ductwork_executions e
     WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL
       AND ($1 = 1 OR e.pipeline IN (SELECT b.name FROM unnest($2::text[]) AS b(name))))
