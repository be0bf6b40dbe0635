SELECT CASE WHEN ? = 'input' THEN s.input ELSE s.output END AS payload
  FROM ductwork_steps s WHERE s.id = ? AND s.run_id = ?
