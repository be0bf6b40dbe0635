UPDATE ductwork_advancements
   SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, result = CAST($1 AS text), error_class = CAST($1 AS text),
       error_message = $2
 WHERE process_id = $3 AND completed_at IS NULL
RETURNING branch_id, claim_token
