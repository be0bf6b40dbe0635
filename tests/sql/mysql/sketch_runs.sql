SELECT count(CASE WHEN ((completed_at IS NOT NULL) <> (status = 'completed') OR (halted_at IS NOT NULL) <> (status = 'halted')
    OR (cancelled_at IS NOT NULL) <> (status = 'cancelled') OR (output IS NOT NULL) <> (status = 'completed')) THEN 1 END) AS odd_times,
       count(CASE WHEN status = 'halted' THEN 1 END) AS halted,
       CAST(coalesce(sum(CASE WHEN id IS NOT NULL THEN CAST(CONV(LEFT(SHA2(id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS runs
  FROM ductwork_runs
