SELECT count(*) FILTER (WHERE ((completed_at IS NULL) <> (result IS NULL))) AS part_ended,
       count(*) FILTER (WHERE coalesce(result, '') <> 'success') AS in_vain,
       CAST(ductwork_fingerprint(transition_id, branch_id, 1) FILTER (WHERE result = 'success') AS TEXT) AS crossed
  FROM ductwork_advancements
