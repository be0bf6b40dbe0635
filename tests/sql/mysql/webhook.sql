SELECT w.name, w.since, w.seen, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now FROM ductwork_webhooks w WHERE w.name = ?
