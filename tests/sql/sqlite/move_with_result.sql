UPDATE ductwork_branches
   SET status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
       step_id = coalesce(held.next_step_id, held.step_id),
       ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END,
       last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                               THEN last_advanced_at ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) END
  FROM batch_held(?1) AS held
 WHERE ductwork_branches.id = held.branch_id
   AND (held.ready = 1 OR held.transition_id IS NOT NULL)
   AND ductwork_branches.step_id = held.step_id
   AND ductwork_branches.status = 'in_progress'
