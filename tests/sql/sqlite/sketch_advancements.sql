SELECT count(CASE WHEN ((completed_at IS NULL) <> (result IS NULL)) THEN 1 END) AS part_ended,
       count(CASE WHEN coalesce(result, '') <> 'success' THEN 1 END) AS in_vain,
       CAST(ductwork_fingerprint(transition_id, branch_id, 1) FILTER (WHERE result = 'success') AS TEXT) AS crossed
  FROM ductwork_advancements
