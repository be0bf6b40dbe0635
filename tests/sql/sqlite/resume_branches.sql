UPDATE ductwork_branches SET status = 'in_progress', ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS branch_id, c1 AS step_id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.branch_id AND ductwork_branches.step_id = b.step_id
   AND ductwork_branches.status = 'dampened'
