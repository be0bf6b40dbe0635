SELECT body FROM ductwork_metrics WHERE process_id = ? FOR UPDATE
