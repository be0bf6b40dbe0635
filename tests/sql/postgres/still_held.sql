SELECT e.id FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_executions e ON e.id = ANY (ARRAY[b.id])
 WHERE e.process_id = $2 AND e.result IS NULL
