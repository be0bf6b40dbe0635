SELECT s.node, s.step, s.via,
       min(CASE WHEN s.source_step_id IS NOT NULL AND s.completed_at < r.triggered_at
                THEN NULL ELSE s.created_at END) AS first_at,
       max(CASE WHEN s.source_step_id IS NOT NULL AND s.completed_at < r.triggered_at
                THEN NULL ELSE s.completed_at END) AS last_at,
       count(*) AS total,
       sum(CASE WHEN s.source_step_id IS NOT NULL AND s.completed_at < r.triggered_at
                THEN 1 ELSE 0 END) AS copied,
       sum(CASE WHEN s.status IN ('advancing', 'completed') THEN 1 ELSE 0 END) AS completed,
       sum(CASE WHEN e.process_id IS NOT NULL THEN 1 ELSE 0 END) AS running,
       sum(CASE WHEN e.attempt > 1 THEN 1 ELSE 0 END) AS retrying,
       sum(CASE WHEN s.status IN ('in_progress', 'advancing')
                 AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait') THEN 1 ELSE 0 END) AS moving,
       sum(CASE WHEN s.status = 'waiting' THEN 1 ELSE 0 END) AS waiting,
       sum(CASE WHEN s.status = 'failed' THEN 1 ELSE 0 END) AS failed,
       sum(CASE WHEN s.status = 'cancelled' THEN 1 ELSE 0 END) AS cancelled
  FROM ductwork_runs r
  JOIN ductwork_branches br ON br.run_id = r.id
  JOIN ductwork_steps s ON s.branch_id = br.id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
 WHERE r.id = ?
 GROUP BY s.node, s.step, s.via
 ORDER BY min(s.created_at), s.node
