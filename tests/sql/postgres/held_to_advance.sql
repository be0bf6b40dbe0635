SELECT br.id FROM ductwork_advancements a 
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[a.branch_id])
  JOIN ductwork_transitions t ON t.id = ANY (ARRAY[a.transition_id])
 WHERE a.process_id = $1 AND a.completed_at IS NULL
