SELECT q.due_at - (extract(epoch from statement_timestamp()) * 1000000)::bigint AS wait FROM ductwork_availabilities q
 WHERE q.pipeline = $1
   AND q.execution_id NOT IN (SELECT x.id FROM unnest($2::uuid[]) AS x(id))
       AND (SELECT r.definition FROM ductwork_executions e
              JOIN ductwork_steps s ON s.id = e.step_id
              JOIN ductwork_runs r ON r.id = s.run_id
             WHERE e.id = q.execution_id) NOT IN (SELECT a.digest FROM unnest($3::text[]) AS a(digest))
 ORDER BY q.due_at, q.execution_id LIMIT 1
