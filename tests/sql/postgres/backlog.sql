SELECT count(*) AS n FROM (
    SELECT 1 FROM ductwork_availabilities
     WHERE pipeline = $1 AND due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint LIMIT $2) x
