SELECT b.id AS run_id, a.due_at
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_branches br ON br.run_id = ANY (ARRAY[b.id]) AND br.fan_out_id IS NULL
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[br.step_id]) AND e.attempt = 1
  JOIN ductwork_availabilities a ON a.execution_id = ANY (ARRAY[e.id])
 WHERE a.due_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint
