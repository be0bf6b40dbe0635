UPDATE ductwork_transitions
   SET completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint, via = 'end',
       produced = coalesce((SELECT (SELECT c.ordinal + 1 FROM ductwork_branches c
                                     WHERE c.fan_out_id = f.id
                                     ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1)
                              FROM ductwork_fan_outs f
                             WHERE f.branch_id = ANY (ARRAY[ductwork_transitions.branch_id])
                               AND f.fired_at IS NULL), 0)
 WHERE ductwork_transitions.branch_id = ANY ($1::uuid[]) AND completed_at IS NULL
