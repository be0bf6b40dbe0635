SELECT pipeline, count(*) AS versions, min(created_at) AS first, max(created_at) AS last
  FROM ductwork_definitions GROUP BY pipeline ORDER BY pipeline LIMIT $1
