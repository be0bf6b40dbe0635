UPDATE ductwork_transitions SET retry_count = retry_count + 1
 WHERE completed_at IS NULL AND from_step_id IN
       (SELECT br.step_id FROM unnest($1::uuid[], $2::uuid[]) AS b(branch_id, token)
          JOIN ductwork_branches br ON br.id = ANY (ARRAY[b.branch_id]) AND br.claim_token = b.token)
