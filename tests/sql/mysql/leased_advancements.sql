SELECT branch_id AS id FROM ductwork_advancements WHERE process_id = ? AND completed_at IS NULL AND holder = ? FOR UPDATE SKIP LOCKED
