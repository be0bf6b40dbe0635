UPDATE ductwork_advancements
   SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = ?1, error_class = ?2, error_message = ?3
  FROM (SELECT c0 AS branch_id, c1 AS token FROM ductwork_rows(?4)) AS b
 WHERE ductwork_advancements.branch_id = b.branch_id
   AND ductwork_advancements.claim_token = b.token
   AND ductwork_advancements.completed_at IS NULL
