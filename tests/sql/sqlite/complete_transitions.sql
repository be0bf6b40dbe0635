UPDATE ductwork_transitions SET via = b.kind, produced = b.steps, completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS branch_id, c2 AS kind, c3 AS steps FROM ductwork_rows(?1)) AS b
 WHERE ductwork_transitions.branch_id = b.branch_id
   AND ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL
