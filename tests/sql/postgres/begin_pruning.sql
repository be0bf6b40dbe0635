UPDATE ductwork_runs SET pruning_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint WHERE ductwork_runs.id = ANY ($1::uuid[])
