SELECT count(*) FILTER (WHERE ((completed_at IS NOT NULL) <> (status = 'completed') OR (halted_at IS NOT NULL) <> (status = 'halted')
    OR (cancelled_at IS NOT NULL) <> (status = 'cancelled') OR (output IS NOT NULL) <> (status = 'completed'))) AS odd_times,
       count(*) FILTER (WHERE status = 'halted') AS halted,
       coalesce(sum(uuid_hash_extended(id, 0)) FILTER (WHERE id IS NOT NULL), 0)::text AS runs
  FROM ductwork_runs
