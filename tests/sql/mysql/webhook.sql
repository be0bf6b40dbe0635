SELECT w.name, w.since, w.seen FROM ductwork_webhooks w WHERE w.name = ?
