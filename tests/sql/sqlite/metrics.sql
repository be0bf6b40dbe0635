SELECT body FROM ductwork_metrics ORDER BY process_id
