SELECT s.node, s.step, s.via, min(s.created_at) AS first_at, max(s.completed_at) AS last_at,
       count(*) AS total,
       sum(CASE WHEN s.status IN ('advancing', 'completed') THEN 1 ELSE 0 END) AS completed,
       sum(CASE WHEN e.process_id IS NOT NULL THEN 1 ELSE 0 END) AS running,
       sum(CASE WHEN e.attempt > 1 THEN 1 ELSE 0 END) AS retrying,
       sum(CASE WHEN s.status IN ('in_progress', 'advancing')
                 AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait') THEN 1 ELSE 0 END) AS moving,
       sum(CASE WHEN s.status = 'waiting' THEN 1 ELSE 0 END) AS waiting,
       sum(CASE WHEN s.status = 'failed' THEN 1 ELSE 0 END) AS failed,
       sum(CASE WHEN s.status = 'cancelled' THEN 1 ELSE 0 END) AS cancelled
  FROM ductwork_branches br
  JOIN ductwork_steps s ON s.branch_id = br.id
  LEFT JOIN ductwork_executions e ON e.step_id = s.id AND e.completed_at IS NULL
 WHERE br.run_id = ?
 GROUP BY s.node, s.step, s.via
 ORDER BY min(s.created_at), s.node
