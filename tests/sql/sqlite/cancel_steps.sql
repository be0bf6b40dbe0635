UPDATE ductwork_steps SET status = 'cancelled', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
 WHERE status IN ('in_progress', 'advancing', 'waiting')
   AND id IN (SELECT br.step_id FROM ductwork_branches br WHERE br.run_id = ?1)
