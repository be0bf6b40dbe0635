UPDATE ductwork_webhooks SET seen = ?1 WHERE name = ?2 AND seen < ?1
