SELECT "key", value, first_set_at, last_set_at FROM ductwork_tuples
 WHERE run_id = ? AND "key" = ?
