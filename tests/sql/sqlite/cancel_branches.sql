UPDATE ductwork_branches
   SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
 WHERE ductwork_branches.id IN (SELECT c0 FROM ductwork_rows(?1)) AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
