SELECT br.id FROM ductwork_advancements a 
  JOIN ductwork_branches br ON br.id = a.branch_id
  JOIN ductwork_transitions t ON t.id = a.transition_id
 WHERE a.process_id = ?1 AND a.completed_at IS NULL
