SELECT DISTINCT br.run_id, br.halt_reason
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
  JOIN ductwork_branches br ON br.run_id = b.id
 WHERE br.halt_reason IS NOT NULL
 ORDER BY br.run_id, br.halt_reason
