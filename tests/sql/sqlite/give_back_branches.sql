UPDATE ductwork_branches
   SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       last_advanced_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS token FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id AND ductwork_branches.claim_token = b.token
