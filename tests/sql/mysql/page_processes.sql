SELECT p.id, p.host, p.pid, CAST(0 AS SIGNED) AS gone, NULL AS death, NULL AS went_on_as
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_processes p ON p.id = b.id
UNION ALL
SELECT d.id, d.host, d.pid, CAST(1 AS SIGNED), d.death, d.went_on_as
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_departed d ON d.id = b.id
