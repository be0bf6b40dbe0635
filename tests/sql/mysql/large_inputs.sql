SELECT s.id, s.input FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_steps s ON s.id = b.id
