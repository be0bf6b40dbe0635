SELECT r.pipeline, r.definition FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b JOIN ductwork_runs r ON r.id = b.id
