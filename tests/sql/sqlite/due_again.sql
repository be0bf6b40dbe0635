UPDATE ductwork_availabilities SET due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + w.delay
  FROM (SELECT a.execution_id,
               CASE WHEN a.due_at > coalesce(p.completed_at, s.created_at)
                    THEN a.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
          FROM ductwork_availabilities a
          JOIN ductwork_executions e ON e.id = a.execution_id
          JOIN ductwork_steps s ON s.id = e.step_id
          LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
         WHERE a.execution_id > ?1 AND a.execution_id <= ?2
           AND a.due_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND coalesce(p.completed_at, s.created_at) > CAST(unixepoch('subsec') * 1000000 AS INTEGER)) w
 WHERE ductwork_availabilities.execution_id = w.execution_id
RETURNING ductwork_availabilities.pipeline AS pipeline
