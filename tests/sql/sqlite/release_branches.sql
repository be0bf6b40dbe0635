UPDATE ductwork_branches
   SET status = 'in_progress', claim_token = NULL, claimed_for_advancing_at = NULL,
       ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1
  FROM (SELECT unhex(value->>0) AS branch_id, unhex(value->>1) AS token FROM json_each(?2)) AS b
 WHERE ductwork_branches.id = b.branch_id AND ductwork_branches.claim_token = b.token
