INSERT INTO ductwork_duties (name, holder, until) VALUES ($1, $2, (extract(epoch from statement_timestamp()) * 1000000)::bigint + $3)
ON CONFLICT (name) DO UPDATE SET holder = $2, until = (extract(epoch from statement_timestamp()) * 1000000)::bigint + $3
 WHERE ductwork_duties.holder = $2 OR ductwork_duties.until <= (extract(epoch from statement_timestamp()) * 1000000)::bigint OR ductwork_duties.until > (extract(epoch from statement_timestamp()) * 1000000)::bigint + $4
