SELECT count(*) FILTER (WHERE ((completed_at IS NULL) <> (result IS NULL))) AS part_ended,
       count(*) FILTER (WHERE coalesce(result, '') <> 'success') AS in_vain,
       coalesce(sum(uuid_hash_extended(transition_id, uuid_hash_extended(branch_id, 0))) FILTER (WHERE result = 'success'), 0)::text AS crossed
  FROM ductwork_advancements
