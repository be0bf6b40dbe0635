INSERT INTO ductwork_actions (id, at, by_whom, channel, verb, pipeline, run_id, made_run, bulk_id)
SELECT b.id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?, ?, r.pipeline, r.id, CAST(? AS binary(16)), CAST(? AS binary(16))
  FROM (SELECT UNHEX(j.c0) AS id, UNHEX(j.c1) AS run FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]', c1 char(32) PATH '$[1]')) AS j) AS b JOIN ductwork_runs r ON r.id = b.run
