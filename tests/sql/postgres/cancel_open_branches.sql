SELECT id FROM ductwork_branches
 WHERE run_id = $1 AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
 ORDER BY id
