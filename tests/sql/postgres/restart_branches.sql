UPDATE ductwork_branches
   SET status = b.to_status, output = NULL,
       ready_at = CASE WHEN b.ready = 1 THEN (extract(epoch from statement_timestamp()) * 1000000)::bigint END
  FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b(id, to_status, ready)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id])
