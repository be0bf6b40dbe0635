SELECT q.due_at - CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS wait FROM ductwork_availabilities q
 WHERE q.pipeline = ?1
   AND q.execution_id NOT IN (SELECT x.id FROM (SELECT c0 AS id FROM ductwork_rows(?2)) AS x)
       AND (SELECT r.definition FROM ductwork_executions e
              JOIN ductwork_steps s ON s.id = e.step_id
              JOIN ductwork_runs r ON r.id = s.run_id
             WHERE e.id = q.execution_id) NOT IN (SELECT a.digest FROM (SELECT c0 AS digest FROM ductwork_rows(?3)) AS a)
 ORDER BY q.due_at, q.execution_id LIMIT 1
