UPDATE ductwork_availabilities SET due_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + w.delay
  FROM (SELECT q.execution_id,
               CASE WHEN q.due_at > coalesce(p.completed_at, s.created_at)
                    THEN q.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
          FROM ductwork_availabilities q
          JOIN ductwork_executions e ON e.id = q.execution_id
          JOIN ductwork_steps s ON s.id = e.step_id
          LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
         WHERE q.execution_id > $1 AND q.execution_id <= $2
           AND q.due_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint AND coalesce(p.completed_at, s.created_at) > (extract(epoch from statement_timestamp()) * 1000000)::bigint) w
 WHERE ductwork_availabilities.execution_id = w.execution_id
RETURNING ductwork_availabilities.pipeline AS pipeline
