SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
   AND ($1 = 1 OR pipeline IN (SELECT b.name FROM unnest($2::text[]) AS b(name)))
   AND id NOT IN (SELECT x.id FROM unnest($3::uuid[]) AS x(id))
   AND (SELECT r.definition FROM ductwork_runs r WHERE r.id = ductwork_branches.run_id)
       NOT IN (SELECT a.digest FROM unnest($4::text[]) AS a(digest))
 ORDER BY ready_at, id LIMIT $5 FOR UPDATE SKIP LOCKED
