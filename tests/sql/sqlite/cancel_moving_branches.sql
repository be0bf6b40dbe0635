SELECT id, status, step_id, fan_out_id FROM ductwork_branches
 WHERE run_id = ?1 AND status IN ('in_progress', 'advancing', 'dampened')
 ORDER BY run_id DESC, fan_out_id DESC LIMIT ?2
