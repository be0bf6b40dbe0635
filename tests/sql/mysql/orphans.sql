SELECT DISTINCT x.process_id FROM (
    SELECT process_id FROM ductwork_executions
     WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND holder IS NOT NULL
    UNION ALL
    SELECT process_id FROM ductwork_advancements
     WHERE completed_at IS NULL AND lease_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND holder IS NOT NULL) x
 WHERE NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE p.id = x.process_id)
