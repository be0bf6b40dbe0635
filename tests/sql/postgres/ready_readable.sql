SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
   AND id NOT IN (SELECT x.id FROM unnest($1::uuid[]) AS x(id))
   AND (SELECT r.definition FROM ductwork_runs r WHERE r.id = ductwork_branches.run_id)
       NOT IN (SELECT a.digest FROM unnest($2::text[]) AS a(digest))
 ORDER BY ready_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
