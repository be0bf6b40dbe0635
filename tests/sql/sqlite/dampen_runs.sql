UPDATE ductwork_runs SET status = 'dampened', dampened = dampened + b.waiting
  FROM (SELECT c0 AS id, c1 AS waiting FROM ductwork_rows(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
