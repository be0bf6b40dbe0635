SELECT id, branch_id, claim_token FROM ductwork_advancements
 WHERE process_id = ? AND completed_at IS NULL AND holder = ? ORDER BY id FOR UPDATE
