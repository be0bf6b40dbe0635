UPDATE ductwork_branches
   SET status = 'cancelled', claim_token = NULL, claimed_for_advancing_at = NULL, ready_at = NULL
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id])
   AND ductwork_branches.status IN ('in_progress', 'advancing', 'waiting', 'dampened')
