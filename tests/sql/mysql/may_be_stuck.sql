SELECT 1 AS found
 WHERE EXISTS (SELECT 1 FROM ductwork_availabilities WHERE pipeline >= '')
    OR EXISTS (SELECT 1 FROM ductwork_branches WHERE ready_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM ductwork_transitions t
                WHERE t.completed_at IS NULL AND t.open_branch IS NOT NULL)
    OR EXISTS (SELECT 1 FROM ductwork_executions e
                WHERE e.completed_at IS NULL AND e.process_id IS NOT NULL AND e.holder IS NOT NULL)
    OR EXISTS (SELECT 1 FROM ductwork_advancements a
                WHERE a.completed_at IS NULL AND a.holder IS NOT NULL)
    OR EXISTS (SELECT 1 FROM ductwork_deadlines WHERE answer_by < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    OR EXISTS (SELECT 1 FROM ductwork_runs WHERE cancelling_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM ductwork_processes WHERE trouble IS NOT NULL)
