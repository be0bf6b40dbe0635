SELECT CASE WHEN ?1 = 'input' THEN r.input ELSE r.output END AS payload
  FROM ductwork_runs r WHERE r.id = ?2 AND r.pruning_at IS NULL
