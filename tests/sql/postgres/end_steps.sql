UPDATE ductwork_steps SET status = b.status, output = b.output, completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::text[], $3::text[]) AS b(id, status, output)
 WHERE ductwork_steps.id = b.id AND ductwork_steps.status = 'in_progress'
