SELECT r.pipeline, r.definition FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_runs r ON r.id = b.id
