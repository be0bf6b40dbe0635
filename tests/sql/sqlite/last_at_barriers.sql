SELECT execution_id FROM (
    SELECT execution_id,
           CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                THEN 1 ELSE 0 END AS last
      FROM (SELECT b.execution_id, b.step_id, b.arrives_at, f.width - f.arrived AS missing
              FROM (SELECT c0 AS execution_id, c1 AS step_id, c2 AS arrives_at FROM ductwork_rows(?1)) AS b
              JOIN ductwork_fan_outs f ON f.id = b.arrives_at) barriers)
 WHERE last = 1
