SELECT id, status, step_id, fan_out_id FROM ductwork_branches
 WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
 ORDER BY id 
