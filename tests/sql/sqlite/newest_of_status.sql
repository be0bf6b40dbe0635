SELECT b.pipeline, (SELECT r.id FROM ductwork_runs r INDEXED BY ductwork_runs_others
                     WHERE r.status <> 'completed' AND r.status = ?1 AND r.pipeline = b.pipeline
                       AND r.revived_from IS NULL AND r.pruning_at IS NULL
                     ORDER BY r.status DESC, r.pipeline DESC, r.id DESC LIMIT 1) AS id
  FROM (SELECT c0 AS pipeline FROM ductwork_rows(?2)) AS b
