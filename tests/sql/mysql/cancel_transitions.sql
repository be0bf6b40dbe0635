UPDATE (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b STRAIGHT_JOIN ductwork_transitions FORCE INDEX (ductwork_transitions_open)
   SET completed_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), via = 'end',
       produced = coalesce((SELECT (SELECT c.ordinal + 1 FROM ductwork_branches c
                                     WHERE c.fan_out_id = f.id
                                     ORDER BY c.fan_out_id DESC, c.ordinal DESC LIMIT 1)
                              FROM ductwork_fan_outs f
                             WHERE f.branch_id = ductwork_transitions.branch_id
                               AND f.fired_at IS NULL), 0)
 WHERE ductwork_transitions.branch_id = b.id AND completed_at IS NULL AND ductwork_transitions.open_branch = b.id
