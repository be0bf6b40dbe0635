UPDATE ductwork_webhooks SET seen = ?1 WHERE name = ?2 AND (seen < ?1 OR seen > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
