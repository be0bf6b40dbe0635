INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline)
VALUES ($1, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $2, $3, $4, $5)
