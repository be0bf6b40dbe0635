SELECT DISTINCT x.process_id FROM (
    SELECT process_id FROM ductwork_executions
     WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < (extract(epoch from statement_timestamp()) * 1000000)::bigint
    UNION ALL
    SELECT process_id FROM ductwork_advancements
     WHERE completed_at IS NULL AND lease_until < (extract(epoch from statement_timestamp()) * 1000000)::bigint) x
 WHERE NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE p.id = ANY (ARRAY[x.process_id]))
