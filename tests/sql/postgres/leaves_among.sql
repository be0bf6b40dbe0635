SELECT b.status, b.ready_at, coalesce(b.claimed_for_advancing_at, ad.claimed_at) AS advancing_since, s.node, e.attempt, e.process_id,
       e.claimed_at, a.due_at, ad.process_id AS advancer_id, d.answer_by, d.unanswered,
       CASE WHEN e.id IS NOT NULL
            THEN (SELECT x.error_message FROM ductwork_executions x
                   WHERE x.step_id = s.id AND x.attempt = e.attempt - 1)
            ELSE (SELECT x.error_message FROM ductwork_transitions t
                    JOIN ductwork_advancements x ON x.transition_id = t.id
                   WHERE t.from_step_id = s.id AND x.completed_at IS NOT NULL
                   ORDER BY x.id DESC LIMIT 1) END AS error_message
  FROM unnest($1::uuid[]) AS x(id)
  JOIN ductwork_branches b ON b.id = ANY (ARRAY[x.id]) 
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.step_id])
  LEFT JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[s.id]) AND e.completed_at IS NULL
  LEFT JOIN ductwork_availabilities a ON a.execution_id = ANY (ARRAY[e.id])
  LEFT JOIN ductwork_advancements ad  ON ad.branch_id = ANY (ARRAY[b.id]) AND ad.completed_at IS NULL
  LEFT JOIN ductwork_deadlines d ON d.branch_id = ANY (ARRAY[b.id])
 WHERE b.status IN ('in_progress', 'advancing', 'dampened')
 ORDER BY CASE WHEN e.process_id IS NOT NULL THEN 0 WHEN ad.process_id IS NOT NULL THEN 1
               WHEN b.ready_at IS NOT NULL THEN 2 WHEN a.due_at IS NOT NULL THEN 3 ELSE 4 END,
          coalesce(e.claimed_at, ad.claimed_at, b.ready_at, a.due_at, 0), b.id LIMIT 100
