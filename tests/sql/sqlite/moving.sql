SELECT x.branch_id AS id FROM (
    SELECT s.branch_id
      FROM ductwork_processes p
     CROSS JOIN ductwork_executions e 
     CROSS JOIN ductwork_steps s
     WHERE e.process_id = p.id AND e.completed_at IS NULL AND e.process_id IS NOT NULL
       AND s.id = e.step_id AND s.run_id = ?1 LIMIT 100) x
UNION
SELECT x.branch_id FROM (
    SELECT a.branch_id
      FROM ductwork_processes p
     CROSS JOIN ductwork_advancements a 
     CROSS JOIN ductwork_branches b
     WHERE a.process_id = p.id AND a.completed_at IS NULL
       AND b.id = a.branch_id AND b.run_id = ?1 LIMIT 100) x
UNION
SELECT heads.id FROM (
    SELECT b.id, b.run_id FROM ductwork_branches b
     WHERE b.ready_at IS NOT NULL ORDER BY b.ready_at, b.id LIMIT ?2) heads
 WHERE heads.run_id = ?1
UNION
SELECT x.branch_id FROM (
    SELECT s.branch_id FROM (
        SELECT a.execution_id FROM ductwork_availabilities a
         WHERE a.pipeline = ?3 ORDER BY a.due_at, a.execution_id LIMIT ?2) heads
     CROSS JOIN ductwork_executions e
     CROSS JOIN ductwork_steps s
     WHERE e.id = heads.execution_id AND s.id = e.step_id AND s.run_id = ?1 LIMIT 100) x
