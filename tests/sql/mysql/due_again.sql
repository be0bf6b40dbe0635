SELECT w.pipeline FROM (SELECT q.execution_id, q.pipeline,
                 CASE WHEN q.due_at > coalesce(p.completed_at, s.created_at)
                      THEN q.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
            FROM ductwork_availabilities q
            JOIN ductwork_executions e ON e.id = q.execution_id
            JOIN ductwork_steps s ON s.id = e.step_id
            LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
           WHERE q.execution_id > ? AND q.execution_id <= ?
             AND q.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND coalesce(p.completed_at, s.created_at) > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) w;
        UPDATE (SELECT q.execution_id, q.pipeline,
                 CASE WHEN q.due_at > coalesce(p.completed_at, s.created_at)
                      THEN q.due_at - coalesce(p.completed_at, s.created_at) ELSE 0 END AS delay
            FROM ductwork_availabilities q
            JOIN ductwork_executions e ON e.id = q.execution_id
            JOIN ductwork_steps s ON s.id = e.step_id
            LEFT JOIN ductwork_executions p ON p.step_id = e.step_id AND p.attempt = e.attempt - 1
           WHERE q.execution_id > ? AND q.execution_id <= ?
             AND q.due_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND coalesce(p.completed_at, s.created_at) > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) w STRAIGHT_JOIN ductwork_availabilities FORCE INDEX (PRIMARY)
           SET due_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + w.delay
         WHERE ductwork_availabilities.execution_id = w.execution_id;
