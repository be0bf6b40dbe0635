INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
       (SELECT '[' || coalesce(group_concat(coalesce(c.output, s.output), ',' ORDER BY c.ordinal), '') || ']'
          FROM ductwork_branches c 
          JOIN ductwork_steps s ON s.id = c.step_id
         WHERE c.fan_out_id = b.from_id), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS run_id, c2 AS branch_id, c3 AS ordinal, c4 AS node, c5 AS step, c6 AS via, c7 AS transition_id, c8 AS status, c9 AS from_id FROM ductwork_rows(?1)) AS b
