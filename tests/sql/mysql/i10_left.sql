WITH found AS (
        SELECT 'step' AS entity, from_step_id AS id, 'was left ' || count(*) || ' times' AS detail
          FROM ductwork_transitions
         GROUP BY from_step_id HAVING count(*) > 1) SELECT * FROM found LIMIT ?
