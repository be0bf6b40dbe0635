SELECT w.name, w.since, w.seen, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now FROM ductwork_webhooks w WHERE w.name = ?1
