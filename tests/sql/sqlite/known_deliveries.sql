SELECT d.run_id, d.endpoint, d.event FROM ductwork_deliveries d WHERE d.run_id IN (SELECT c0 FROM ductwork_rows(?1))
