UPDATE ductwork_webhooks SET seen = ? WHERE name = ? AND seen < ?
