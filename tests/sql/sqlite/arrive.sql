UPDATE ductwork_fan_outs
   SET arrived = arrived + b.arriving, halted = halted + b.halting,
       fired_at = CASE WHEN arrived + b.arriving = width THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END
  FROM (SELECT unhex(value->>0) AS id, value->>1 AS arriving, value->>2 AS halting FROM json_each(?1)) AS b
 WHERE ductwork_fan_outs.id = b.id
RETURNING ductwork_fan_outs.id AS id, width, arrived, halted, branch_id
