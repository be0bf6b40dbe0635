WITH found AS (
        SELECT 'advancement' AS entity, a.id, 'is an attempt at no transition of its branch' AS detail
          FROM ductwork_advancements a
          LEFT JOIN ductwork_transitions t ON t.id = a.transition_id AND t.branch_id = a.branch_id
         WHERE coalesce(a.result, '') <> 'success' AND t.id IS NULL) SELECT * FROM found LIMIT ?
