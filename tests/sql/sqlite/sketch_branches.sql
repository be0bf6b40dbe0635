SELECT CAST(ductwork_fingerprint(run_id, NULL, 1) FILTER (WHERE fan_out_id IS NULL) AS TEXT) AS roots,
       CAST(ductwork_fingerprint(step_id, id, 1) FILTER (WHERE status IN ('in_progress', 'advancing', 'dampened')) AS TEXT) AS standing
  FROM ductwork_branches
