INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, last_advanced_at)
SELECT b.id, b.run_id, b.pipeline, b.fan_out_id, b.ordinal, 'in_progress', b.step_id, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS run_id, value->>2 AS pipeline, unhex(value->>3) AS fan_out_id, value->>4 AS ordinal, unhex(value->>5) AS step_id FROM json_each(?1)) AS b
