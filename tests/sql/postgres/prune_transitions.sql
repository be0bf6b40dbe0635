DELETE FROM ductwork_transitions WHERE ductwork_transitions.id = ANY ($1::uuid[])
