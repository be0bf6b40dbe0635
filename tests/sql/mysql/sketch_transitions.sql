SELECT count(CASE WHEN ((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL)) THEN 1 END) AS part_crossed,
       count(CASE WHEN completed_at IS NULL THEN 1 END) AS under_way,
       count(CASE WHEN retry_count <> 0 OR crash_count <> 0 THEN 1 END) AS spent,
       CAST(coalesce(sum(CASE WHEN completed_at IS NOT NULL THEN CAST(CONV(LEFT(SHA2(from_step_id, 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS passed,
       CAST(coalesce(sum(CASE WHEN produced IS NOT NULL THEN CAST(CONV(LEFT(SHA2(CONCAT(run_id, id), 256), 15), 16, 10) AS DECIMAL(20)) * produced END), 0) AS CHAR) AS produced,
       CAST(coalesce(sum(CASE WHEN completed_at IS NOT NULL THEN CAST(CONV(LEFT(SHA2(CONCAT(branch_id, id), 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS crossed
  FROM ductwork_transitions
