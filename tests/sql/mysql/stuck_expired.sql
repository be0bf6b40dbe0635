SELECT x.pipeline, s.run_id, x.lease_until AS since
  FROM (SELECT pipeline, step_id, lease_until FROM ductwork_executions
         WHERE completed_at IS NULL AND process_id IS NOT NULL AND holder IS NOT NULL AND lease_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
         ORDER BY process_id LIMIT 100) x
  JOIN ductwork_steps s ON s.id = x.step_id
UNION ALL
SELECT br.pipeline, br.run_id, a.lease_until
  FROM ductwork_advancements a
  JOIN ductwork_branches br ON br.id = a.branch_id
 WHERE a.completed_at IS NULL AND a.holder IS NOT NULL AND a.lease_until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
 LIMIT 100
