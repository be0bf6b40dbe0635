SELECT id FROM ductwork_branches
 WHERE ready_at IS NOT NULL AND ready_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
 ORDER BY ready_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
