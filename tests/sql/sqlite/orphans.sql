SELECT DISTINCT x.process_id FROM (
    SELECT process_id FROM ductwork_executions
     WHERE completed_at IS NULL AND process_id IS NOT NULL AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER)
    UNION ALL
    SELECT process_id FROM ductwork_advancements
     WHERE completed_at IS NULL AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER)) x
 WHERE NOT EXISTS (SELECT 1 FROM ductwork_processes p WHERE p.id = x.process_id)
