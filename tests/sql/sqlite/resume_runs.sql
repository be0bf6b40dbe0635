UPDATE ductwork_runs
   SET status = CASE WHEN dampened = b.n THEN 'in_progress' ELSE 'dampened' END,
       dampened = dampened - b.n
  FROM (SELECT c0 AS id, c1 AS n FROM ductwork_rows(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') = 'dampened'
