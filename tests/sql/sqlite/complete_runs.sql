UPDATE ductwork_runs
   SET status = 'completed', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       output = (SELECT coalesce(br.output, s.output)
                   FROM ductwork_branches br JOIN ductwork_steps s ON s.id = br.step_id
                  WHERE br.id = b.branch_id)
  FROM (SELECT c0 AS id, c1 AS branch_id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
