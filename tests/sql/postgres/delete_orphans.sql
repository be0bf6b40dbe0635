DELETE FROM ductwork_deliveries WHERE id = ANY ($1::uuid[])
