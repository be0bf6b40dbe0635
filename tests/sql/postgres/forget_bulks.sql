DELETE FROM ductwork_bulks
 WHERE ended_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 AND id IN (SELECT id FROM ductwork_bulks ORDER BY id LIMIT $2)
