UPDATE ductwork_steps
   SET status = 'advancing', output = coalesce($1, input), completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
 WHERE status = 'waiting' AND id IN (SELECT b.id FROM unnest($2::uuid[]) AS b(id))
