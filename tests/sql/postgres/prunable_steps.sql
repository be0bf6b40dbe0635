SELECT s.id, t.id AS transition_id, CAST(CASE s.via WHEN 'on_wait' THEN 1 ELSE 0 END AS bigint) AS about_wait
  FROM ductwork_steps s
  LEFT JOIN ductwork_transitions t ON t.from_step_id = ANY (ARRAY[s.id])
 WHERE s.branch_id = ANY ($1::uuid[])
