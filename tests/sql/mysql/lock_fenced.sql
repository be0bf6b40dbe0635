SELECT br.id FROM ductwork_branches br
 WHERE br.id IN (SELECT b.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) ORDER BY br.id FOR UPDATE
