UPDATE ductwork_steps
   SET status = 'advancing', output = coalesce($1, input), completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint,
       answered_by = $2
 WHERE status = 'waiting' AND id IN (SELECT b.id FROM unnest($3::uuid[]) AS b(id))
