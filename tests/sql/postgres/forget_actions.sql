DELETE FROM ductwork_actions WHERE ductwork_actions.id = ANY ($1::uuid[])
