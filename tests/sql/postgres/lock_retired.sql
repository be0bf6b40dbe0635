SELECT body FROM ductwork_metrics WHERE process_id = $1 FOR NO KEY UPDATE
