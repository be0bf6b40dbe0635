INSERT INTO ductwork_reports (id, kind, at, ok, figures) VALUES ($1, $2, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $3, $4)
