SELECT x.id FROM (SELECT k.id, k.ended_at FROM ductwork_bulks k ORDER BY k.id LIMIT $1) x
 WHERE x.ended_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2
