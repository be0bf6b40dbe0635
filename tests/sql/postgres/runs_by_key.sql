SELECT r.id, r.trigger_key, r.input
  FROM unnest($1::text[]) AS b(trigger_key)
  JOIN ductwork_runs r ON r.pipeline = $2 AND r.trigger_key = b.trigger_key
