UPDATE ductwork_advancements
   SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = CAST(?1 AS text), error_class = CAST(?1 AS text),
       error_message = ?2
 WHERE process_id = ?3 AND completed_at IS NULL
RETURNING branch_id, claim_token
