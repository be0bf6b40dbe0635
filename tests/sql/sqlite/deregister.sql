DELETE FROM ductwork_processes
 WHERE id = ?1
   AND NOT EXISTS (SELECT 1 FROM ductwork_executions e
                    WHERE e.process_id = ?1 AND e.completed_at IS NULL)
   AND NOT EXISTS (SELECT 1 FROM ductwork_advancements a
                    WHERE a.process_id = ?1 AND a.completed_at IS NULL)
