UPDATE ductwork_steps SET status = 'cancelled', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
 WHERE ductwork_steps.id = ANY ($1::uuid[]) AND status IN ('in_progress', 'advancing', 'waiting')
