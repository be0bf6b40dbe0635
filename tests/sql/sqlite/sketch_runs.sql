SELECT count(CASE WHEN ((completed_at IS NOT NULL) <> (status = 'completed') OR (halted_at IS NOT NULL) <> (status = 'halted')
    OR (cancelled_at IS NOT NULL) <> (status = 'cancelled') OR (output IS NOT NULL) <> (status = 'completed')) THEN 1 END) AS odd_times,
       count(CASE WHEN status = 'halted' THEN 1 END) AS halted,
       CAST(ductwork_fingerprint(id, NULL, 1) FILTER (WHERE id IS NOT NULL) AS TEXT) AS runs
  FROM ductwork_runs
