DELETE FROM ductwork_tuples WHERE run_id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id))
