UPDATE ductwork_runs SET status = 'completed', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), output = held.output
  FROM batch_held(?1) AS held
 WHERE ductwork_runs.id = held.run_id
   AND held.ends = 1
   AND held.arrives_at IS NULL
   AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
