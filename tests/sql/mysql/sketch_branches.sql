SELECT CAST(coalesce(sum(CASE WHEN fan_out_id IS NULL THEN CAST(CONV(LEFT(SHA2(run_id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS roots,
       CAST(coalesce(sum(CASE WHEN status IN ('in_progress', 'advancing', 'dampened') THEN CAST(CONV(LEFT(SHA2(CONCAT(id, step_id), 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS standing
  FROM ductwork_branches
