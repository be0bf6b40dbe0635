SELECT id, fan_out_id, ordinal, status, halt_reason, step_id, ready_at,
       claimed_for_advancing_at, last_advanced_at
  FROM ductwork_branches WHERE run_id = $1 ORDER BY id LIMIT $2
