UPDATE ductwork_runs SET status = 'dampened', dampened = dampened + b.waiting
  FROM (SELECT unhex(value->>0) AS id, value->>1 AS waiting FROM json_each(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
