INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT CASE WHEN s.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(s.id), 17)) END, ?1, CASE WHEN s.branch_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(s.branch_id), 17)) END, s.ordinal, s.node, s.step, s.via,
       'in_progress', s.input, ?2
  FROM (SELECT c0 AS id FROM ductwork_rows(?3)) AS c
  JOIN ductwork_branches br ON br.id = c.id
  JOIN ductwork_steps s ON s.id = br.step_id
 WHERE s.status = 'failed' AND s.via <> 'dampen'
