SELECT b.pipeline, (SELECT r.id FROM ductwork_runs r INDEXED BY ductwork_runs_completed
                     WHERE r.status = 'completed' AND r.pipeline = b.pipeline
                       AND r.revived_from IS NULL AND r.pruning_at IS NULL
                     ORDER BY r.pipeline DESC, r.id DESC LIMIT 1) AS id
  FROM (SELECT c0 AS pipeline FROM ductwork_rows(?1)) AS b
