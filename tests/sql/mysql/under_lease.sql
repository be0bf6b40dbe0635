SELECT p.id FROM ductwork_processes p
 WHERE p.id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND p.last_heartbeat_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND (EXISTS (SELECT 1 FROM ductwork_executions e FORCE INDEX (ductwork_executions_claimed)
                 WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL AND e.holder = p.id
                   AND e.lease_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
        OR EXISTS (SELECT 1 FROM ductwork_advancements a FORCE INDEX (ductwork_advancements_claimed)
                    WHERE a.process_id = p.id AND a.completed_at IS NULL AND a.holder = p.id
                      AND a.lease_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))))
