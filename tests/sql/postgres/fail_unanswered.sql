UPDATE ductwork_steps SET status = 'failed', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
 WHERE status = 'waiting' AND id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id))
