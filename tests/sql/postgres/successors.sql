SELECT n.revived_from AS run_id, n.id AS successor
  FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_runs n ON n.revived_from = ANY (ARRAY[b.id])
