SELECT 1 AS n FROM ductwork_runs WHERE id = ? AND cancelling_at IS NOT NULL
