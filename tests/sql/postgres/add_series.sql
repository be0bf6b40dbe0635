INSERT INTO ductwork_series (pipeline, grain, at, since, started, completed, halted, retries, waited, lasted)
SELECT b.pipeline, b.grain, b.at, b.since, b.started, b.completed, b.halted, b.retries, b.waited, b.lasted
  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::text[]) AS b(pipeline, grain, at, since, started, completed, halted, retries, waited, lasted) WHERE true
ON CONFLICT (pipeline, grain, at) DO UPDATE SET
       started = ductwork_series.started + excluded.started,
       completed = ductwork_series.completed + excluded.completed,
       halted = ductwork_series.halted + excluded.halted,
       retries = ductwork_series.retries + excluded.retries,
       waited = excluded.waited, lasted = excluded.lasted
