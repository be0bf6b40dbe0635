DELETE FROM ductwork_branches WHERE ductwork_branches.id = ANY ($1::uuid[])
