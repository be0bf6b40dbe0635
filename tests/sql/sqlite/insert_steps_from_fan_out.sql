INSERT INTO ductwork_steps
    (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
SELECT b.id, b.run_id, b.branch_id, b.ordinal, b.node, b.step, b.via, b.transition_id, b.status,
       (SELECT '[' || coalesce(group_concat(coalesce(c.output, s.output), ',' ORDER BY c.ordinal), '') || ']'
          FROM ductwork_branches c JOIN ductwork_steps s ON s.id = c.step_id
         WHERE c.fan_out_id = b.from_id), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS run_id, unhex(value->>2) AS branch_id, value->>3 AS ordinal, value->>4 AS node, value->>5 AS step, value->>6 AS via, unhex(value->>7) AS transition_id, value->>8 AS status, unhex(value->>9) AS from_id FROM json_each(?1)) AS b
