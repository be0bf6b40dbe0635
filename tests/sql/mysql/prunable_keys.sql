SELECT max(t."key") AS last
  FROM (SELECT "key" FROM ductwork_tuples WHERE run_id = ? ORDER BY "key" LIMIT ?) t
