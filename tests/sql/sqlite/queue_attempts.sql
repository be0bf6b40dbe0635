INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT held.attempt_id, ?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + held.delay
  FROM temp.results AS held WHERE held.attempt_id IS NOT NULL AND held.leased = 0
