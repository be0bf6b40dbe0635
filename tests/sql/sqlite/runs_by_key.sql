SELECT r.id, r.trigger_key, r.pruning_at, CASE WHEN octet_length(r.input) <= b.size THEN r.input END AS input
  FROM (SELECT c0 AS trigger_key, c1 AS size FROM ductwork_rows(?1)) AS b
  JOIN ductwork_runs r 
    ON r.pipeline = ?2 AND r.trigger_key = b.trigger_key
