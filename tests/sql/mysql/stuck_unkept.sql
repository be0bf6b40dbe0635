SELECT 'question' AS kind, br.pipeline, br.run_id, x.answer_by AS since
  FROM (SELECT branch_id, answer_by FROM ductwork_deadlines
         WHERE answer_by < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? AND unanswered IN ('halt', 'approve')
         ORDER BY answer_by LIMIT 100) x
  JOIN ductwork_branches br ON br.id = x.branch_id
UNION ALL
SELECT 'cancellation', x.pipeline, x.id, x.cancelling_at
  FROM (SELECT pipeline, id, cancelling_at FROM ductwork_runs
         WHERE cancelling_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? - ?
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs m
                            WHERE m.cancelling_at BETWEEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
         ORDER BY cancelling_at LIMIT 100) x
