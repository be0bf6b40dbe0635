UPDATE ductwork_runs SET status = 'dampened', dampened = dampened + b.waiting
  FROM unnest($1::uuid[], $2::bigint[]) AS b(id, waiting)
 WHERE ductwork_runs.id = ANY (ARRAY[b.id]) AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
