SELECT br.id FROM ductwork_advancements a FORCE INDEX (ductwork_advancements_claimed)
  STRAIGHT_JOIN ductwork_branches br FORCE INDEX (PRIMARY) ON br.id = a.branch_id
  STRAIGHT_JOIN ductwork_transitions t FORCE INDEX (PRIMARY) ON t.id = a.transition_id
 WHERE a.process_id = ? AND a.completed_at IS NULL AND a.holder = ? FOR UPDATE SKIP LOCKED
