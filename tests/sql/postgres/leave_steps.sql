UPDATE ductwork_steps SET status = 'completed'
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_steps.id = ANY (ARRAY[b.id]) AND ductwork_steps.status = 'advancing'
