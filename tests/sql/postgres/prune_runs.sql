DELETE FROM ductwork_runs WHERE id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id))
