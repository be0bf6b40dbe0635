DELETE FROM ductwork_deliveries WHERE ductwork_deliveries.run_id IN (SELECT c0 FROM ductwork_rows(?1))
