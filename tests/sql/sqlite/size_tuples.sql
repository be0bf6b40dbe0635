SELECT "key", CAST(octet_length(value) AS bigint) AS size FROM ductwork_tuples
 WHERE run_id = ?1 AND "key" > ?2 ORDER BY "key" LIMIT ?3
