DELETE FROM ductwork_bulks WHERE ductwork_bulks.id = ANY ($1::uuid[])
