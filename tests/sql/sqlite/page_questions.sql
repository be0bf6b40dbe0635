SELECT count(*) AS n, min(x.created_at) AS oldest
  FROM (SELECT s.created_at
          FROM ductwork_steps s INDEXED BY ductwork_steps_asked
         WHERE s.run_id IN (SELECT c0 FROM ductwork_rows(?1)) AND s.via = 'dampen' AND s.status = 'waiting'
         ORDER BY s.created_at, s.id LIMIT ?2) x
