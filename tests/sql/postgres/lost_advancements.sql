UPDATE ductwork_advancements
   SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = $1, error_class = $2, error_message = $3
 WHERE ductwork_advancements.branch_id = ANY ($4::uuid[]) AND process_id = $5
   AND completed_at IS NULL
