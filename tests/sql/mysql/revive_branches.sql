INSERT INTO ductwork_branches
    (id, run_id, pipeline, fan_out_id, ordinal, status, step_id, output, last_advanced_at)
SELECT UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(br.id), 17))), ?, br.pipeline, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(br.fan_out_id), 17))), br.ordinal,
       CASE br.status WHEN 'completed' THEN 'completed' ELSE 'waiting' END,
       UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(br.step_id), 17))), br.output, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS c
  JOIN ductwork_branches br ON br.id = c.id
