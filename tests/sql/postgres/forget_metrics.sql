DELETE FROM ductwork_metrics WHERE process_id = ANY ($1::uuid[])
