SELECT 'branch' AS entity, b.id, 'stands at a step that is not its last' AS detail
  FROM ductwork_branches b
  JOIN ductwork_steps s ON s.id = b.step_id
  JOIN ductwork_steps l ON l.branch_id = b.id AND l.ordinal > s.ordinal
 WHERE b.status NOT IN ('completed', 'halted', 'cancelled')
 LIMIT ?1
