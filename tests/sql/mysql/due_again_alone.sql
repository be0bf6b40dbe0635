UPDATE (SELECT a.execution_id, a.pipeline,
         CASE WHEN a.due_at > coalesce(p.completed_at, s.created_at)
              THEN a.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
    FROM ductwork_availabilities a
    JOIN ductwork_executions e ON e.id = a.execution_id
    JOIN ductwork_steps s ON s.id = e.step_id
    LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
   WHERE a.execution_id > ? AND a.execution_id <= ?
     AND a.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND coalesce(p.completed_at, s.created_at) > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) w STRAIGHT_JOIN ductwork_availabilities
   SET due_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + w.delay
 WHERE ductwork_availabilities.execution_id = w.execution_id
