INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
SELECT held.attempt_id, ?,
       coalesce(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + held.due_in,
                (SELECT CASE WHEN min(a.due_at) < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) THEN min(a.due_at) - 1 END
                   FROM ductwork_availabilities a WHERE a.pipeline = ?),
                TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
  FROM ductwork_held AS held WHERE held.attempt_id IS NOT NULL AND held.leased = 0
