INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, arrived, parent_fan_out_id, parent_ordinal,
     created_at, fired_at)
SELECT CASE WHEN f.id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(f.id), 17)) END, ?1, CASE WHEN f.branch_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(f.branch_id), 17)) END, f.node, f.via, f.width, f.arrived - f.halted,
       CASE WHEN f.parent_fan_out_id IS NOT NULL THEN unhex(substr(hex(?1), 1, 16) || substr(hex(f.parent_fan_out_id), 17)) END, f.parent_ordinal, f.created_at,
       CASE WHEN f.arrived - f.halted = f.width THEN f.fired_at END
  FROM (SELECT c0 AS id FROM ductwork_rows(?2)) AS c
  JOIN ductwork_fan_outs f ON f.branch_id = c.id
