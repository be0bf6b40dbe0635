DELETE FROM ductwork_actions
 WHERE at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 AND id IN (SELECT id FROM ductwork_actions ORDER BY id LIMIT $2)
