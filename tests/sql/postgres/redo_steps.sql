UPDATE ductwork_steps
   SET status = b.status, output = NULL, completed_at = NULL, source_step_id = NULL
  FROM unnest($1::uuid[], $2::text[]) AS b(id, status)
 WHERE ductwork_steps.id = ANY (ARRAY[b.id])
