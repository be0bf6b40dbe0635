SELECT r.id, r.trigger_key, r.input
  FROM (SELECT value->>0 AS trigger_key FROM json_each(?1)) AS b
  JOIN ductwork_runs r ON r.pipeline = ?2 AND r.trigger_key = b.trigger_key
