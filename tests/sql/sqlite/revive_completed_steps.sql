INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, source_step_id, status, input, output,
     created_at, completed_at)
SELECT CASE WHEN s.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(s.id), 17)) END, ?1, CASE WHEN s.branch_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(s.branch_id), 17)) END, s.ordinal, s.node, s.step, s.via, s.id,
       s.status, s.input, s.output, s.created_at, s.completed_at
  FROM (SELECT c0 AS id FROM ductwork_rows(?2)) AS c
  JOIN ductwork_steps s ON s.branch_id = c.id
 WHERE s.status = 'completed' AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
   AND s.id NOT IN (SELECT b.id FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS b)
