INSERT INTO ductwork_deadlines (branch_id, answer_by, unanswered)
SELECT b.id, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.timeout, b.unanswered
  FROM (SELECT c0 AS id, c1 AS timeout, c2 AS unanswered FROM ductwork_rows(?1)) AS b WHERE true
ON CONFLICT (branch_id) DO UPDATE SET answer_by = excluded.answer_by, unanswered = excluded.unanswered
