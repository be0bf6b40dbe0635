INSERT INTO ductwork_deadlines (branch_id, answer_by, unanswered)
SELECT b.id, (extract(epoch from statement_timestamp()) * 1000000)::bigint + b.timeout, b.unanswered
  FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS b(id, timeout, unanswered) WHERE true
ON CONFLICT (branch_id) DO UPDATE SET answer_by = excluded.answer_by, unanswered = excluded.unanswered
