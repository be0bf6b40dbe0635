SELECT id, branch_id, claim_token FROM ductwork_advancements
 WHERE process_id = ?1 AND completed_at IS NULL ORDER BY id 
