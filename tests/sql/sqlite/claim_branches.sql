UPDATE ductwork_branches
   SET status = 'advancing', claim_token = b.token, claimed_for_advancing_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), ready_at = NULL
  FROM (SELECT unhex(value->>0) AS id, unhex(value->>1) AS token FROM json_each(?1)) AS b
 WHERE ductwork_branches.id = b.id AND ductwork_branches.ready_at IS NOT NULL
   AND ductwork_branches.status = 'in_progress'
