UPDATE ductwork_runs SET status = 'halted', halted_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
 WHERE ductwork_runs.id = b.id AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
