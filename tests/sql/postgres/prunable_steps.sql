SELECT s.id, t.id AS transition_id
  FROM ductwork_steps s
  LEFT JOIN ductwork_transitions t ON t.from_step_id = ANY (ARRAY[s.id])
 WHERE s.branch_id = ANY ($1::uuid[])
