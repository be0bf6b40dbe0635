SELECT w.name, w.since, w.seen, (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now FROM ductwork_webhooks w WHERE w.name = $1
