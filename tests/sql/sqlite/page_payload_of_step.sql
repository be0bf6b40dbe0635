SELECT CASE WHEN ?1 = 'input' THEN s.input ELSE s.output END AS payload
  FROM ductwork_steps s WHERE s.id = ?2 AND s.run_id = ?3
