INSERT INTO ductwork_advancements
    (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
SELECT b.id, b.transition_id, b.branch_id, $1, b.claim_token, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint, 'success'
  FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[]) AS b(id, transition_id, branch_id, claim_token)
