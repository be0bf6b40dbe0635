INSERT INTO ductwork_transitions
    (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
SELECT b.id, b.run_id, b.branch_id, b.from_step_id, b.via, b.produced, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS run_id, unhex(value->>2) AS branch_id, unhex(value->>3) AS from_step_id, value->>4 AS via, value->>5 AS produced FROM json_each(?1)) AS b
