DELETE FROM ductwork_metrics WHERE ductwork_metrics.process_id = ANY ($1::uuid[])
