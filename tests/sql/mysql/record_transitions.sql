INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
       held.produced, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM ductwork_held AS held WHERE held.transition_id IS NOT NULL AND held.last = 0
