INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, made_run, bulk_id)
SELECT b.id, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?1, ?2, ?3, r.pipeline, r.id, CAST(?4 AS blob), CAST(?5 AS blob)
  FROM (SELECT c0 AS id, c1 AS run FROM ductwork_rows(?6)) AS b JOIN ductwork_runs r ON r.id = b.run
