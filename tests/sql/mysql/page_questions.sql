SELECT count(*) AS n, min(x.created_at) AS oldest
  FROM (SELECT s.created_at
          FROM ductwork_steps s FORCE INDEX (ductwork_steps_asked)
         WHERE s.run_id IN (SELECT id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b) AND s.via = 'dampen' AND s.status = 'waiting'
         ORDER BY s.created_at, s.id LIMIT ?) x
