WITH found AS (
        SELECT 'advancement' AS entity, a.id, 'succeeded, but at no transition of its branch' AS detail
          FROM ductwork_advancements a
          LEFT JOIN ductwork_transitions t ON t.id = a.transition_id AND t.branch_id = a.branch_id
         WHERE a.result = 'success' AND t.completed_at IS NULL
        UNION ALL
        SELECT 'transition', t.id, 'was crossed, but by ' || count(a.id) || ' attempts'
          FROM ductwork_transitions t
          LEFT JOIN ductwork_branches b ON b.id = t.branch_id
          LEFT JOIN ductwork_advancements a ON a.transition_id = t.id AND a.result = 'success'
         WHERE t.completed_at IS NOT NULL
         GROUP BY t.id, b.status HAVING count(a.id) > 1 OR (count(a.id) = 0 AND coalesce(b.status, '') <> 'cancelled')) SELECT * FROM found LIMIT ?
