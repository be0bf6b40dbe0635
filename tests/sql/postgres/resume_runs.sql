UPDATE ductwork_runs
   SET status = CASE WHEN dampened = b.n THEN 'in_progress' ELSE 'dampened' END,
       dampened = dampened - b.n
  FROM unnest($1::uuid[], $2::bigint[]) AS b(id, n)
 WHERE ductwork_runs.id = ANY (ARRAY[b.id]) AND coalesce(ductwork_runs.status, '') = 'dampened'
