DELETE FROM ductwork_deliveries WHERE ductwork_deliveries.run_id = ANY ($1::uuid[])
