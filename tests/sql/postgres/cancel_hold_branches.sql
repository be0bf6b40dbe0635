SELECT id, status, step_id, fan_out_id FROM ductwork_branches
 WHERE id = ANY ($1::uuid[]) AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
 ORDER BY id FOR NO KEY UPDATE
