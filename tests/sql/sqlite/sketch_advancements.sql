SELECT count(*) FILTER (WHERE ((completed_at IS NULL) <> (result IS NULL))) AS part_ended
  FROM ductwork_advancements
