SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
   AND ($1 = 1 OR pipeline IN (SELECT b.name FROM unnest($2::text[]) AS b(name)))
 ORDER BY ready_at, id LIMIT $3 FOR UPDATE SKIP LOCKED
