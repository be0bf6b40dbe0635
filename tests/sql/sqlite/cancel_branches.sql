UPDATE ductwork_branches
   SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id
   AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting', 'dampened')
