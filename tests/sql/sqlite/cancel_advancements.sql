UPDATE ductwork_advancements SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = 'cancelled'
 WHERE completed_at IS NULL
   AND branch_id IN (SELECT br.id FROM ductwork_branches br WHERE br.run_id = ?1)
