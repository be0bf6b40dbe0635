SELECT r.id, r.pipeline, r.status,
       (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = r.id) AS successor
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS q JOIN ductwork_runs r ON r.id = q.id
 WHERE r.pruning_at IS NULL
 ORDER BY r.id
