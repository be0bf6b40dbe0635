SELECT x.id, b.halt_reason, s.node, e.error_class, substr(e.error_message, 1, 1000) AS error_message
  FROM (SELECT q.id, (SELECT h.id FROM ductwork_branches h 
                 WHERE h.run_id = q.id AND h.halt_reason IS NOT NULL
                 ORDER BY h.id LIMIT 1) AS branch_id
          FROM unnest($1::uuid[]) AS q(id)) x
  LEFT JOIN ductwork_branches b ON b.id = ANY (ARRAY[x.branch_id])
  LEFT JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.step_id])
  LEFT JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[s.id]) AND e.attempt =
       (SELECT max(y.attempt) FROM ductwork_executions y WHERE y.step_id = s.id)
