UPDATE ductwork_branches SET ready_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint WHERE ready_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1 RETURNING id
