DELETE FROM ductwork_steps WHERE ductwork_steps.id = ANY ($1::uuid[])
