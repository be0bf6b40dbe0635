UPDATE ductwork_held AS held STRAIGHT_JOIN ductwork_branches FORCE INDEX (PRIMARY)
   SET ductwork_branches.status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
       ductwork_branches.step_id = coalesce(held.next_step_id, held.step_id),
       ductwork_branches.ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END,
       ductwork_branches.last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                                                 THEN ductwork_branches.last_advanced_at ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) END
 WHERE ductwork_branches.id = CASE WHEN held.ready = 1 OR held.transition_id IS NOT NULL THEN held.branch_id END
   AND ductwork_branches.step_id = held.step_id
   AND ductwork_branches.status = 'in_progress'
;
