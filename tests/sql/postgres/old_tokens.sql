SELECT id FROM ductwork_tokens
 WHERE kind IN ('link', 'session') AND expires_at < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 LIMIT $2
