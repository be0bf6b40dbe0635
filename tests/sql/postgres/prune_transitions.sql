DELETE FROM ductwork_transitions WHERE id = ANY ($1::uuid[])
