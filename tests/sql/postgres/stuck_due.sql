WITH RECURSIVE names (pipeline) AS (
    SELECT min(pipeline) FROM ductwork_availabilities WHERE pipeline >= ''
    UNION ALL
    SELECT (SELECT min(a.pipeline) FROM ductwork_availabilities a WHERE a.pipeline > n.pipeline)
      FROM names n WHERE n.pipeline IS NOT NULL)
SELECT a.pipeline, s.run_id, a.due_at AS since
  FROM (SELECT (SELECT a.execution_id FROM ductwork_availabilities a
                 WHERE a.pipeline = names.pipeline
                 ORDER BY a.pipeline, a.due_at, a.execution_id LIMIT 1) AS execution_id
          FROM names
         WHERE names.pipeline IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM ductwork_pauses p WHERE p.pipeline = names.pipeline)) h
  JOIN ductwork_availabilities a ON a.execution_id = h.execution_id
  JOIN ductwork_executions e ON e.id = a.execution_id
  JOIN ductwork_steps s ON s.id = e.step_id
 WHERE a.due_at < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1
 ORDER BY a.due_at LIMIT 10000
