UPDATE ductwork_held AS held STRAIGHT_JOIN ductwork_steps FORCE INDEX (PRIMARY)
   SET ductwork_steps.status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
       ductwork_steps.output = held.output, ductwork_steps.completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE ductwork_steps.id = CASE WHEN held.step_status IS NOT NULL THEN held.step_id END
   AND ductwork_steps.status = 'in_progress'
