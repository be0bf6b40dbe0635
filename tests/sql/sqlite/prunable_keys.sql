SELECT max(t."key") AS last
  FROM (SELECT "key" FROM ductwork_tuples WHERE run_id = ?1 ORDER BY "key" LIMIT ?2) t
