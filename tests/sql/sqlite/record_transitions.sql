INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
       held.produced, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM batch_held(?1) AS held WHERE held.transition_id IS NOT NULL AND held.last = 0
