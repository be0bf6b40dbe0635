INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT held.attempt_id, ?1,
       coalesce(CAST(unixepoch('subsec') * 1000000 AS INTEGER) + held.due_in,
                (SELECT CASE WHEN min(a.due_at) < CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = ?1),
                CAST(unixepoch('subsec') * 1000000 AS INTEGER))
  FROM batch_held(?2) AS held WHERE held.attempt_id IS NOT NULL AND held.leased = 0
