SELECT id, fan_out_id, ordinal
  FROM ductwork_branches WHERE run_id = ?1 ORDER BY id LIMIT ?2
