SELECT p.id FROM ductwork_processes p WHERE p.id = ANY ($1::uuid[])
