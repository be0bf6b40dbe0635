SELECT s.id, s.input FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_steps s ON s.id = ANY (ARRAY[b.id])
