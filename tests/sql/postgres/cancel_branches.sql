UPDATE ductwork_branches
   SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
 WHERE ductwork_branches.id = ANY ($1::uuid[]) AND status IN ('in_progress', 'advancing', 'waiting', 'dampened')
