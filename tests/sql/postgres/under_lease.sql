SELECT p.id FROM ductwork_processes p
 WHERE p.id = ANY ($1::uuid[]) AND p.last_heartbeat_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
   AND (EXISTS (SELECT 1 FROM ductwork_executions e 
                 WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL
                   AND e.lease_until > (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        OR EXISTS (SELECT 1 FROM ductwork_advancements a 
                    WHERE a.process_id = p.id AND a.completed_at IS NULL
                      AND a.lease_until > (extract(epoch from statement_timestamp()) * 1000000)::bigint))
