SELECT branch_id AS id FROM ductwork_advancements WHERE process_id = ?1 AND completed_at IS NULL 
