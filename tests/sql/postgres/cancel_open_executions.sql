SELECT e.id FROM ductwork_branches br
  JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[br.step_id]) AND e.result IS NULL
 WHERE br.id = ANY ($1::uuid[])
