SELECT min(ready_at) - (extract(epoch from statement_timestamp()) * 1000000)::bigint AS wait FROM ductwork_branches WHERE ready_at IS NOT NULL
