SELECT r.id, r.pipeline, r.status,
       (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = ANY (ARRAY[r.id])) AS successor
  FROM unnest($1::uuid[]) AS q(id) JOIN ductwork_runs r ON r.id = ANY (ARRAY[q.id])
 WHERE r.pruning_at IS NULL
 ORDER BY r.id
