INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, parent_fan_out_id, parent_ordinal, created_at)
SELECT b.id, b.run_id, b.branch_id, b.node, b.via, b.width, b.parent_id, b.parent_ordinal, CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS run_id, c2 AS branch_id, c3 AS node, c4 AS via, c5 AS width, c6 AS parent_id, c7 AS parent_ordinal FROM ductwork_rows(?1)) AS b
