SELECT min(due_at) - (extract(epoch from statement_timestamp()) * 1000000)::bigint AS wait FROM ductwork_availabilities WHERE pipeline = $1
