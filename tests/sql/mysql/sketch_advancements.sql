SELECT count(CASE WHEN ((completed_at IS NULL) <> (result IS NULL)) THEN 1 END) AS part_ended,
       count(CASE WHEN coalesce(result, '') <> 'success' THEN 1 END) AS in_vain,
       CAST(coalesce(sum(CASE WHEN result = 'success' THEN CAST(CONV(LEFT(SHA2(CONCAT(branch_id, transition_id), 256), 15), 16, 10) AS DECIMAL(20)) END), 0) AS CHAR) AS crossed
  FROM ductwork_advancements
