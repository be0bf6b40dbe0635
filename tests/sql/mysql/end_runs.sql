UPDATE ductwork_held AS held STRAIGHT_JOIN ductwork_runs FORCE INDEX (PRIMARY)
   SET ductwork_runs.status = 'completed', ductwork_runs.completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ductwork_runs.output = held.output
 WHERE ductwork_runs.id = CASE WHEN held.ends = 1 AND held.arrives_at IS NULL THEN held.run_id END
   AND ductwork_runs.status IN ('in_progress', 'dampened')
;
