UPDATE ductwork_branches SET last_advanced_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS token FROM ductwork_rows(?1)) AS b
 WHERE ductwork_branches.id = b.id AND ductwork_branches.claim_token = b.token
