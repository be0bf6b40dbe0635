UPDATE ductwork_fan_outs
   SET fired_at = CASE WHEN arrived + b.arriving = width THEN (extract(epoch from statement_timestamp()) * 1000000)::bigint END,
       arrived = arrived + b.arriving, halted = halted + b.halting
  FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS b(id, arriving, halting)
 WHERE ductwork_fan_outs.id = ANY (ARRAY[b.id])
RETURNING ductwork_fan_outs.id AS id, width, arrived, halted, branch_id
