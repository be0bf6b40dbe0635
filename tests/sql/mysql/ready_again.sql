SELECT w.id FROM (SELECT br.id, CASE WHEN t.id IS NULL THEN s.completed_at ELSE br.last_advanced_at END AS since
            FROM ductwork_branches br
            JOIN ductwork_steps s ON s.id = br.step_id
            LEFT JOIN ductwork_transitions t ON t.from_step_id = br.step_id AND t.completed_at IS NULL
           WHERE br.ready_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) w WHERE w.since > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
        UPDATE (SELECT br.id, CASE WHEN t.id IS NULL THEN s.completed_at ELSE br.last_advanced_at END AS since
            FROM ductwork_branches br
            JOIN ductwork_steps s ON s.id = br.step_id
            LEFT JOIN ductwork_transitions t ON t.from_step_id = br.step_id AND t.completed_at IS NULL
           WHERE br.ready_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) w STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
           SET ductwork_branches.ready_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + CASE WHEN ductwork_branches.ready_at > w.since
                                                         THEN ductwork_branches.ready_at - w.since ELSE 0 END,
               ductwork_branches.last_advanced_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
         WHERE ductwork_branches.id = w.id AND ductwork_branches.ready_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND w.since > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
