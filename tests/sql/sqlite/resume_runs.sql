UPDATE ductwork_runs
   SET dampened = dampened - b.n,
       status = CASE WHEN dampened = b.n THEN 'in_progress' ELSE 'dampened' END
  FROM (SELECT c0 AS id, c1 AS n FROM ductwork_rows(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') = 'dampened'
