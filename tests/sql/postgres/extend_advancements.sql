UPDATE ductwork_advancements SET lease_until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1
 WHERE ductwork_advancements.branch_id = ANY ($2::uuid[]) AND process_id = $3 AND completed_at IS NULL
