UPDATE ductwork_branches
   SET status = 'advancing', claim_token = b.token, claimed_for_advancing_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), ready_at = NULL
  FROM (SELECT c0 AS id, c1 AS token FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id AND ductwork_branches.ready_at IS NOT NULL
   AND ductwork_branches.status = 'in_progress'
