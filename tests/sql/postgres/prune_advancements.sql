DELETE FROM ductwork_advancements WHERE ductwork_advancements.transition_id = ANY ($1::uuid[])
