INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
SELECT CASE WHEN s.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(s.id), 17)) END, ?1, CASE WHEN s.branch_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(s.branch_id), 17)) END, s.ordinal, s.node, s.step, s.via,
       b.status, s.input, ?2
  FROM (SELECT c0 AS id, c1 AS status FROM ductwork_rows(?3)) AS b
  JOIN ductwork_steps s ON s.id = b.id
