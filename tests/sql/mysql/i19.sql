WITH found AS (
        SELECT 'step' AS entity, s.id, 'is ' || s.status || ', but its branch stands elsewhere' AS detail
          FROM ductwork_steps s
          LEFT JOIN ductwork_branches b ON b.id = s.branch_id
         WHERE s.status IN ('in_progress', 'advancing', 'waiting') AND s.via NOT IN ('on_halt', 'on_complete', 'on_wait')
           AND (b.id IS NULL OR b.step_id <> s.id)) SELECT * FROM found LIMIT ?
