UPDATE ductwork_transitions SET retry_count = retry_count + 1
 WHERE completed_at IS NULL AND from_step_id IN
       (SELECT br.step_id FROM (SELECT c0 AS branch_id, c1 AS token FROM ductwork_rows(?1)) AS b
          JOIN ductwork_branches br ON br.id = b.branch_id AND br.claim_token = b.token)
