SELECT x.id FROM (SELECT a.id, a.at FROM ductwork_actions a ORDER BY a.id LIMIT $1) x
 WHERE x.at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2
