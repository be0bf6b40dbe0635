DELETE FROM ductwork_branches WHERE id = ANY ($1::uuid[])
