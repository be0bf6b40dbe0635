UPDATE ductwork_tokens SET ended_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
 WHERE parent = $1 AND ended_at IS NULL AND expires_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint
