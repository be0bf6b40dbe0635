UPDATE ductwork_webhooks SET seen = $1 WHERE name = $2 AND (seen < $1 OR seen > (extract(epoch from statement_timestamp()) * 1000000)::bigint)
