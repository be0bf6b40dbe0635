SELECT d.run_id, d.endpoint, d.event FROM ductwork_deliveries d WHERE d.run_id = ANY ($1::uuid[])
