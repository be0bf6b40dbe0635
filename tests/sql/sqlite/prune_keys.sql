DELETE FROM ductwork_tuples WHERE run_id = ?1 AND "key" <= ?2
