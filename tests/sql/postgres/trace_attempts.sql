SELECT e.id, e.step_id, e.attempt, e.claimed_at, e.completed_at, e.result, e.error_class,
       substr(e.error_message, 1, 1000) AS error_message, e.process_id, coalesce(p.host, d.host) AS host
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[b.id]) AND e.claimed_at IS NOT NULL AND e.attempt >
       (SELECT max(x.attempt) FROM ductwork_executions x WHERE x.step_id = b.id) - $2
  LEFT JOIN ductwork_processes p ON p.id = ANY (ARRAY[e.process_id])
  LEFT JOIN ductwork_departed d ON d.id = ANY (ARRAY[e.process_id])
 ORDER BY e.step_id, e.attempt
