UPDATE ductwork_runs SET pruning_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) WHERE ductwork_runs.id IN (SELECT c0 FROM ductwork_rows(?1))
