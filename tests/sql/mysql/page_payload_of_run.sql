SELECT CASE WHEN ? = 'input' THEN r.input ELSE r.output END AS payload
  FROM ductwork_runs r WHERE r.id = ? AND r.pruning_at IS NULL
