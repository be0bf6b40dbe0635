SELECT DISTINCT br.run_id, br.halt_reason
  FROM unnest($1::uuid[]) AS b(id)
  JOIN ductwork_branches br ON br.run_id = b.id
 WHERE br.halt_reason IS NOT NULL
 ORDER BY br.run_id, br.halt_reason
