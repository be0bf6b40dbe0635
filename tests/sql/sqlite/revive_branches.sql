INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, output, last_advanced_at)
SELECT CASE WHEN br.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(br.id), 17)) END, ?1, br.pipeline, CASE WHEN br.fan_out_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(br.fan_out_id), 17)) END, br.ordinal,
       CASE br.status WHEN 'completed' THEN 'completed' ELSE 'waiting' END,
       CASE WHEN br.step_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(br.step_id), 17)) END, br.output, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id FROM ductwork_rows(?2)) AS c
  JOIN ductwork_branches br ON br.id = c.id
