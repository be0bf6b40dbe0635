UPDATE ductwork_branches
   SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL,
       ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.delay,
       last_advanced_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS branch_id, c1 AS token, c2 AS delay FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.branch_id AND ductwork_branches.claim_token = b.token
