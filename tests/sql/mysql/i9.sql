WITH found AS (
        SELECT 'branch' AS entity, id, 'is ' || status || CASE WHEN claim_token IS NULL THEN ' without' ELSE ' with' END
               || ' a claim token' AS detail
          FROM ductwork_branches
         WHERE (claim_token IS NOT NULL) <> (status = 'advancing')
            OR (claim_token IS NOT NULL) <> (claimed_for_advancing_at IS NOT NULL)
        UNION ALL
        SELECT 'branch', b.id, 'is advancing, but no open advancement has its token'
          FROM ductwork_branches b
          LEFT JOIN ductwork_advancements a
                 ON a.branch_id = b.id AND a.completed_at IS NULL AND a.claim_token = b.claim_token
         WHERE b.status = 'advancing' AND a.id IS NULL
        UNION ALL
        SELECT 'advancement', a.id, 'is open, but its branch is not under its token'
          FROM ductwork_advancements a
          LEFT JOIN ductwork_branches b ON b.id = a.branch_id
         WHERE a.completed_at IS NULL AND (b.claim_token IS NULL OR b.claim_token <> a.claim_token)
        UNION ALL
        SELECT 'branch', branch_id, 'has ' || count(*) || ' open advancements'
          FROM ductwork_advancements WHERE completed_at IS NULL
         GROUP BY branch_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
