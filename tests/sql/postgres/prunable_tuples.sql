SELECT t.run_id FROM ductwork_tuples t WHERE t.run_id = ANY ($1::uuid[]) LIMIT $2
