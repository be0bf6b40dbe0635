UPDATE ductwork_runs SET status = 'halted', halted_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
