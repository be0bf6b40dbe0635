WITH found AS (
        SELECT 'step' AS entity, s.id, 'is a copy, but its output is not that of its original' AS detail
          FROM ductwork_steps s
          JOIN ductwork_steps o ON o.id = s.source_step_id
         WHERE s.source_step_id IS NOT NULL AND s.output <> o.output) SELECT * FROM found LIMIT ?
