SELECT count(CASE WHEN ((completed_at IS NULL) <> (result IS NULL)) THEN 1 END) AS part_ended,
       count(CASE WHEN coalesce(result, '') <> 'success' THEN 1 END) AS in_vain,
       coalesce(sum(uuid_hash_extended(transition_id, uuid_hash_extended(branch_id, 0))) FILTER (WHERE result = 'success'), 0)::text AS crossed
  FROM ductwork_advancements
