UPDATE ductwork_steps SET status = 'cancelled', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
 WHERE ductwork_steps.id IN (SELECT c0 FROM ductwork_rows(?1)) AND status IN ('in_progress', 'advancing', 'waiting')
