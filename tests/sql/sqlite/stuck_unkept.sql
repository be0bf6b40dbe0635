SELECT 'question' AS kind, br.pipeline, br.run_id, x.answer_by AS since
  FROM (SELECT branch_id, answer_by FROM ductwork_deadlines
         WHERE answer_by < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 AND unanswered IN ('halt', 'approve')
         ORDER BY answer_by LIMIT 100) x
  JOIN ductwork_branches br ON br.id = x.branch_id
UNION ALL
SELECT 'cancellation', x.pipeline, x.id, x.cancelling_at
  FROM (SELECT pipeline, id, cancelling_at FROM ductwork_runs
         WHERE cancelling_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1 - ?2
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs m
                            WHERE m.cancelling_at BETWEEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2 AND CAST(unixepoch('subsec') * 1000000 AS INTEGER))
         ORDER BY cancelling_at LIMIT 100) x
