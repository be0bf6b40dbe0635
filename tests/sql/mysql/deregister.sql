DELETE FROM ductwork_processes
 WHERE id = ?
   AND NOT EXISTS (SELECT 1 FROM ductwork_executions e
                    WHERE e.process_id = ? AND e.completed_at IS NULL AND e.holder = ?)
   AND NOT EXISTS (SELECT 1 FROM ductwork_advancements a
                    WHERE a.process_id = ? AND a.completed_at IS NULL AND a.holder = ?)
