DELETE FROM ductwork_deliveries WHERE ductwork_deliveries.id = ANY ($1::uuid[])
