INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT held.next_step_id, held.run_id, held.branch_id, held.next_ordinal, held.next_node,
       held.next_step, held.via, held.transition_id, 'in_progress', held.output, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM ductwork_held AS held WHERE held.next_step_id IS NOT NULL
