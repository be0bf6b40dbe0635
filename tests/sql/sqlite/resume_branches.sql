UPDATE ductwork_branches SET status = 'in_progress', ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS branch_id, unhex(value->>1) AS step_id FROM json_each(?1)) AS b
 WHERE ductwork_branches.id = b.branch_id AND ductwork_branches.step_id = b.step_id
   AND ductwork_branches.status = 'dampened'
RETURNING ductwork_branches.step_id AS step_id
