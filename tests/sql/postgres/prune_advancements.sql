DELETE FROM ductwork_advancements WHERE transition_id = ANY ($1::uuid[])
