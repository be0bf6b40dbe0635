UPDATE ductwork_advancements SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = 'cancelled'
 WHERE ductwork_advancements.branch_id = ANY ($1::uuid[]) AND completed_at IS NULL
