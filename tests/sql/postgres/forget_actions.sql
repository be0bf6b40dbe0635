DELETE FROM ductwork_actions
 WHERE id IN (SELECT id FROM ductwork_actions
               WHERE id < $1 AND at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2 ORDER BY id LIMIT $3)
