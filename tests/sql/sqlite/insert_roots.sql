INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, ?1, 0, 'in_progress', b.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS run_id, unhex(value->>2) AS step_id FROM json_each(?2)) AS b
