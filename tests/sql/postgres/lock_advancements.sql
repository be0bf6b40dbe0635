SELECT a.branch_id AS id, a.claim_token FROM ductwork_advancements a
 WHERE a.process_id = $1 AND a.branch_id = ANY ($2::uuid[]) AND a.completed_at IS NULL
 ORDER BY a.branch_id FOR NO KEY UPDATE
