WITH found AS (
        SELECT 'branch' AS entity, b.id, 'stands at a step that is not its last' AS detail
          FROM ductwork_branches b
         CROSS JOIN ductwork_steps s
         CROSS JOIN ductwork_steps l
         WHERE s.id = b.step_id AND l.branch_id = b.id AND l.ordinal > s.ordinal
           AND b.status NOT IN ('completed', 'halted', 'cancelled')) SELECT * FROM found LIMIT ?
