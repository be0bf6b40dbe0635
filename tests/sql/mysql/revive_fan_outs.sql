INSERT INTO ductwork_fan_outs
    (id, run_id, branch_id, node, via, width, arrived, parent_fan_out_id, parent_ordinal,
     created_at, fired_at)
SELECT UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(f.id), 17))), ?, UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(f.branch_id), 17))), f.node, f.via, f.width, f.arrived - f.halted,
       UNHEX(CONCAT(LEFT(HEX(CAST(? AS binary(16))), 16), SUBSTR(HEX(f.parent_fan_out_id), 17))), f.parent_ordinal, f.created_at,
       CASE WHEN f.arrived - f.halted = f.width THEN f.fired_at END
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS c
  JOIN ductwork_fan_outs f ON f.branch_id = c.id
