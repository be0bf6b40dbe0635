SELECT e.id, e.step_id, e.attempt, e.retry_count, e.crash_count,
       s.run_id, s.branch_id, s.ordinal AS step_ordinal, s.node, s.step, s.via,
       CASE WHEN octet_length(s.input) <= 16384 THEN s.input END AS input,
       CAST(octet_length(s.input) AS SIGNED) AS size,
       br.fan_out_id, br.ordinal, r.definition, r.trace_parent, r.trace_state, r.baggage
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b
  JOIN ductwork_executions e ON e.id = b.id AND e.process_id = ?
  JOIN ductwork_steps s ON s.id = e.step_id
  JOIN ductwork_branches br ON br.id = s.branch_id
  JOIN ductwork_runs r ON r.id = s.run_id
 ORDER BY e.id
