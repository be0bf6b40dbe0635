SELECT r.id, r.trigger_key, r.pruning_at, CASE WHEN octet_length(r.input) <= b.size THEN r.input END AS input
  FROM unnest($1::text[], $2::bigint[]) AS b(trigger_key, size)
  JOIN ductwork_runs r 
    ON r.pipeline = $3 AND r.trigger_key = b.trigger_key
