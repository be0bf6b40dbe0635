DELETE FROM ductwork_deliveries WHERE run_id = ANY ($1::uuid[])
