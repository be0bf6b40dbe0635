SELECT 1 AS n FROM ductwork_runs WHERE id = ?1 AND cancelling_at IS NOT NULL
