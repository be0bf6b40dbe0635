SELECT d.endpoint AS name FROM ductwork_deliveries d FORCE INDEX (ductwork_deliveries_pipeline)
 WHERE d.pipeline = ? AND d.endpoint > ? ORDER BY d.pipeline, d.endpoint LIMIT 1
