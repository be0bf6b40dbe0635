SELECT count(*) AS n, min(x.created_at) AS oldest
  FROM (SELECT s.created_at
          FROM ductwork_steps s 
         WHERE s.run_id = ANY ($1::uuid[]) AND s.via = 'dampen' AND s.status = 'waiting'
         ORDER BY s.created_at, s.id LIMIT $2) x
