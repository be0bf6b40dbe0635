WITH found AS (
        SELECT 'step' AS entity, s.id, 'was reached by ' || s.via || ', but by no transition of its run' AS detail
          FROM ductwork_steps s
          LEFT JOIN ductwork_runs r ON r.id = s.run_id
          LEFT JOIN ductwork_transitions t ON t.id = s.transition_id AND t.run_id = s.run_id
         WHERE s.source_step_id IS NULL AND s.via NOT IN ('start', 'on_halt', 'on_complete', 'on_wait') AND t.id IS NULL
           AND (s.transition_id IS NOT NULL OR r.revived_from IS NULL) AND r.pruning_at IS NULL) SELECT * FROM found LIMIT ?
