SELECT r.id, r.trigger_key, r.input
  FROM (SELECT c0 AS trigger_key FROM ductwork_rows(?1)) AS b
  JOIN ductwork_runs r ON r.pipeline = ?2 AND r.trigger_key = b.trigger_key
