WITH found AS (
        SELECT 'branch' AS entity, branch_id AS id, 'has ' || count(*) || ' open transitions' AS detail
          FROM ductwork_transitions WHERE completed_at IS NULL
         GROUP BY branch_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
