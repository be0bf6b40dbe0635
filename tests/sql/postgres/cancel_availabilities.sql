DELETE FROM ductwork_availabilities
 WHERE execution_id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id))
