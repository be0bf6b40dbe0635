SELECT r.id, r.pipeline, r.status,
       (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = r.id) AS successor
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS q JOIN ductwork_runs r ON r.id = q.id
 WHERE r.pruning_at IS NULL
 ORDER BY r.id
