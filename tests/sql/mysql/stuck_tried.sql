SELECT br.pipeline, t.run_id, t.opened_at AS since,
       (SELECT a.error_message FROM ductwork_advancements a
         WHERE a.transition_id = t.id AND a.error_message IS NOT NULL
         ORDER BY a.id DESC LIMIT 1) AS error
  FROM ductwork_transitions t
  JOIN ductwork_branches br ON br.id = t.branch_id
 WHERE t.completed_at IS NULL AND t.open_branch IS NOT NULL AND t.opened_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
   AND (br.ready_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
        OR br.ready_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM ductwork_fan_outs f
                            WHERE f.branch_id = br.id AND f.fired_at IS NULL))
   AND EXISTS (SELECT 1 FROM ductwork_advancements a
                WHERE a.transition_id = t.id AND a.error_class IS NOT NULL
                  AND a.error_class NOT IN ('released', 'process_crashed'))
 LIMIT 100
