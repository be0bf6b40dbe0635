SELECT id, cancelling_at FROM ductwork_runs
 WHERE cancelling_at IS NOT NULL AND (cancelling_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 OR cancelling_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
   AND cancelling_at >= ?2 AND (cancelling_at, id) > (?2, ?3)
 ORDER BY cancelling_at, id LIMIT ?4
