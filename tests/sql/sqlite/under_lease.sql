SELECT p.id FROM ductwork_processes p
 WHERE p.id IN (SELECT c0 FROM ductwork_rows(?1)) AND p.last_heartbeat_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
   AND (EXISTS (SELECT 1 FROM ductwork_executions e 
                 WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL
                   AND e.lease_until > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
        OR EXISTS (SELECT 1 FROM ductwork_advancements a 
                    WHERE a.process_id = p.id AND a.completed_at IS NULL
                      AND a.lease_until > CAST(unixepoch('subsec') * 1000000 AS INTEGER)))
