DELETE FROM ductwork_metrics WHERE ductwork_metrics.process_id IN (SELECT c0 FROM ductwork_rows(?1))
