SELECT br.id FROM ductwork_branches br WHERE br.run_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b)
