SELECT n.revived_from AS run_id, n.id AS successor
  FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_runs n ON n.revived_from = b.id
