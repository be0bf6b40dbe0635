SELECT x.id, x.halted_at,
       (SELECT n.id FROM ductwork_runs n WHERE n.revived_from = x.id LIMIT 1) AS revived_as,
       b.halt_reason, s.node, e.error_class, substr(e.error_message, 1, 1000) AS error_message
  FROM (SELECT r.id, r.halted_at, (SELECT h.id FROM ductwork_branches h FORCE INDEX (ductwork_branches_reasons)
                 WHERE h.run_id = r.id AND h.halt_reason IS NOT NULL
                 ORDER BY h.id LIMIT 1) AS branch_id
          FROM ductwork_runs r FORCE INDEX (ductwork_runs_others)
         WHERE r.status <> 'completed' AND r.status = 'halted' AND r.pipeline = ?
           AND r.pruning_at IS NULL
         ORDER BY r.status DESC, r.id DESC LIMIT ?) x
  LEFT JOIN ductwork_branches b ON b.id = x.branch_id
  LEFT JOIN ductwork_steps s ON s.id = b.step_id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.attempt =
       (SELECT max(y.attempt) FROM ductwork_executions y WHERE y.step_id = s.id)
 ORDER BY x.id DESC
