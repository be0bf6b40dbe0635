DELETE FROM ductwork_departed WHERE ductwork_departed.id = ANY ($1::uuid[])
