SELECT r.pipeline, r.definition FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_runs r ON r.id = ANY (ARRAY[b.id])
