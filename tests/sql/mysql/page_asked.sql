SELECT s.run_id, r.pipeline, r.definition, s.id, s.node, s.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now,
       CAST(octet_length(s.input) AS SIGNED) AS input_size, CASE WHEN octet_length(s.input) <= ? THEN s.input END AS input,
       d.answer_by, d.unanswered, br.ordinal AS place, f.width, f.via
  FROM ductwork_steps s FORCE INDEX (ductwork_steps_asked)
  JOIN ductwork_runs r ON r.id = s.run_id
  JOIN ductwork_branches br ON br.id = s.branch_id
  LEFT JOIN ductwork_fan_outs f ON f.id = br.fan_out_id
  LEFT JOIN ductwork_deadlines d ON d.branch_id = s.branch_id
 WHERE s.run_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND s.via = 'dampen' AND s.status = 'waiting'
   AND (s.run_id > ? OR s.run_id = ? AND s.id > ?)
 ORDER BY s.run_id, s.id LIMIT ?
