SELECT count(CASE WHEN ((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL)) THEN 1 END) AS part_crossed,
       count(CASE WHEN completed_at IS NULL THEN 1 END) AS under_way,
       count(CASE WHEN retry_count <> 0 OR crash_count <> 0 THEN 1 END) AS spent,
       CAST(ductwork_fingerprint(from_step_id, NULL, 1) FILTER (WHERE completed_at IS NOT NULL) AS TEXT) AS passed,
       CAST(ductwork_fingerprint(id, run_id, produced) FILTER (WHERE produced IS NOT NULL) AS TEXT) AS produced,
       CAST(ductwork_fingerprint(id, branch_id, 1) FILTER (WHERE completed_at IS NOT NULL) AS TEXT) AS crossed
  FROM ductwork_transitions
