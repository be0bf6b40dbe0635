SELECT s.id, t.id AS transition_id
  FROM ductwork_steps s
  LEFT JOIN ductwork_transitions t ON t.from_step_id = s.id
 WHERE s.branch_id IN (SELECT c0 FROM ductwork_rows(?1))
