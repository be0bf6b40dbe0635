UPDATE ductwork_steps
   SET status = 'advancing', output = coalesce($1, input), completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint,
       answered_by = $2
  FROM unnest($3::uuid[]) AS b(id)
 WHERE ductwork_steps.id = ANY (ARRAY[b.id]) AND ductwork_steps.status = 'waiting'
