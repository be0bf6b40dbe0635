SELECT e.id, CAST(CASE WHEN e.process_id IS NULL AND e.completed_at IS NULL THEN 1 ELSE 0 END AS bigint) AS is_queued
  FROM ductwork_executions e WHERE e.id = ANY ($1::uuid[])
