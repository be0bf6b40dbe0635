DELETE FROM ductwork_deliveries WHERE id IN (SELECT c0 FROM ductwork_rows(?1))
