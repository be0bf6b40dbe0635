DELETE FROM ductwork_steps WHERE id = ANY ($1::uuid[])
