WITH found AS (
        SELECT 'run' AS entity, id, 'is ' || status || ', but its times or its output say otherwise' AS detail
          FROM ductwork_runs WHERE ((completed_at IS NOT NULL) <> (status = 'completed') OR (halted_at IS NOT NULL) <> (status = 'halted')
            OR (cancelled_at IS NOT NULL) <> (status = 'cancelled') OR (output IS NOT NULL) <> (status = 'completed'))) SELECT * FROM found LIMIT ?
