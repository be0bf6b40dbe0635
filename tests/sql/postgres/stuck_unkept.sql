SELECT 'question' AS kind, br.pipeline, br.run_id, x.answer_by AS since
  FROM (SELECT branch_id, answer_by FROM ductwork_deadlines
         WHERE answer_by < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 AND unanswered IN ('halt', 'approve')
         ORDER BY answer_by LIMIT 100) x
  JOIN ductwork_branches br ON br.id = ANY (ARRAY[x.branch_id])
UNION ALL
SELECT 'cancellation', x.pipeline, x.id, x.cancelling_at
  FROM (SELECT pipeline, id, cancelling_at FROM ductwork_runs
         WHERE cancelling_at < (extract(epoch from statement_timestamp()) * 1000000)::bigint - $1 - $2
           AND NOT EXISTS (SELECT 1 FROM ductwork_runs m
                            WHERE m.cancelling_at BETWEEN (extract(epoch from statement_timestamp()) * 1000000)::bigint - $2 AND (extract(epoch from statement_timestamp()) * 1000000)::bigint)
         ORDER BY cancelling_at LIMIT 100) x
