INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, arrived, parent_fan_out_id, parent_ordinal,
     created_at, fired_at)
SELECT (left($1::uuid::text, 19) || substr(f.id::text, 20))::uuid, $1, (left($1::uuid::text, 19) || substr(f.branch_id::text, 20))::uuid, f.node, f.via, f.width, f.arrived - f.halted,
       (left($1::uuid::text, 19) || substr(f.parent_fan_out_id::text, 20))::uuid, f.parent_ordinal, f.created_at,
       CASE WHEN f.arrived - f.halted = f.width THEN f.fired_at END
  FROM unnest($2::uuid[]) AS c(id)
  JOIN ductwork_fan_outs f ON f.branch_id = ANY (ARRAY[c.id])
