INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, parent_fan_out_id, parent_ordinal, created_at)
SELECT b.id, b.run_id, b.branch_id, b.node, b.via, b.width, b.parent_id, b.parent_ordinal, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS run_id, unhex(value->>2) AS branch_id, value->>3 AS node, value->>4 AS via, value->>5 AS width, unhex(value->>6) AS parent_id, value->>7 AS parent_ordinal FROM json_each(?1)) AS b
