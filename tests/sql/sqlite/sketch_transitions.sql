SELECT count(*) FILTER (WHERE ((completed_at IS NOT NULL) <> (via IS NOT NULL) OR (completed_at IS NOT NULL) <> (produced IS NOT NULL))) AS part_crossed,
       count(*) FILTER (WHERE completed_at IS NULL) AS under_way,
       count(*) FILTER (WHERE retry_count <> 0 OR crash_count <> 0) AS spent,
       CAST(ductwork_fingerprint(from_step_id, NULL, 1) FILTER (WHERE completed_at IS NOT NULL) AS TEXT) AS passed,
       CAST(ductwork_fingerprint(id, run_id, produced) FILTER (WHERE produced IS NOT NULL) AS TEXT) AS produced,
       CAST(ductwork_fingerprint(id, branch_id, 1) FILTER (WHERE completed_at IS NOT NULL) AS TEXT) AS crossed
  FROM ductwork_transitions
