DELETE FROM ductwork_tuples WHERE run_id = ? AND "key" <= ?
