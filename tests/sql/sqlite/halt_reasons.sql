SELECT DISTINCT br.run_id, br.halt_reason
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
  JOIN ductwork_branches br ON br.run_id = b.id
 WHERE br.halt_reason IS NOT NULL
 ORDER BY br.run_id, br.halt_reason
