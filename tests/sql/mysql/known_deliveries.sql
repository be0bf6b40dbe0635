SELECT d.run_id, d.endpoint, d.event FROM ductwork_deliveries d WHERE d.run_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b)
