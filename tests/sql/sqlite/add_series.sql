INSERT INTO ductwork_series (pipeline, grain, at, since, started, completed, halted, retries, waited, lasted)
SELECT b.pipeline, b.grain, b.at, b.since, b.started, b.completed, b.halted, b.retries, b.waited, b.lasted
  FROM (SELECT c0 AS pipeline, c1 AS grain, c2 AS at, c3 AS since, c4 AS started, c5 AS completed, c6 AS halted, c7 AS retries, c8 AS waited, c9 AS lasted FROM ductwork_rows(?1)) AS b WHERE true
ON CONFLICT (pipeline, grain, at) DO UPDATE SET
       started = ductwork_series.started + excluded.started,
       completed = ductwork_series.completed + excluded.completed,
       halted = ductwork_series.halted + excluded.halted,
       retries = ductwork_series.retries + excluded.retries,
       waited = excluded.waited, lasted = excluded.lasted
