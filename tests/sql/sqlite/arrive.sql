UPDATE ductwork_fan_outs
   SET fired_at = CASE WHEN arrived + b.arriving = width THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END,
       arrived = arrived + b.arriving, halted = halted + b.halting
  FROM (SELECT c0 AS id, c1 AS arriving, c2 AS halting FROM ductwork_rows(?1)) AS b
 WHERE ductwork_fan_outs.id = b.id
RETURNING ductwork_fan_outs.id AS id, width, arrived, halted, branch_id
