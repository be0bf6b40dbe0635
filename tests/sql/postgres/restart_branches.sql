UPDATE ductwork_branches
   SET status = 'in_progress', output = NULL,
       ready_at = CASE WHEN b.ready = 1 THEN (extract(epoch from statement_timestamp()) * 1000000)::bigint END
  FROM unnest($1::uuid[], $2::bigint[]) AS b(id, ready)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id])
