SELECT "key", CAST(octet_length(value) AS SIGNED) AS size FROM ductwork_tuples
 WHERE run_id = ? AND "key" > ? ORDER BY "key" LIMIT ?
