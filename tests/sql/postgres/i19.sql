SELECT 'step' AS entity, s.id, 'is ' || s.status || ', but its branch stands elsewhere' AS detail
  FROM ductwork_steps s
  LEFT JOIN ductwork_branches b ON b.id = s.branch_id
 WHERE s.status IN ('in_progress', 'advancing', 'waiting') AND s.via <> 'on_halt'
   AND (b.id IS NULL OR b.step_id <> s.id)
UNION ALL
SELECT 'branch', b.id, 'stands at a step that is not its last'
  FROM ductwork_branches b
  JOIN ductwork_steps s ON s.id = b.step_id
  JOIN ductwork_steps l ON l.branch_id = b.id AND l.ordinal > s.ordinal
 WHERE b.status NOT IN ('completed', 'halted', 'cancelled')
 LIMIT $1
