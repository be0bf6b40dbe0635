WITH RECURSIVE names (endpoint) AS (
    SELECT (SELECT d.endpoint FROM ductwork_deliveries d
             WHERE d.pipeline = ANY (ARRAY[$1]) ORDER BY d.pipeline, d.endpoint LIMIT 1)
    UNION ALL
    SELECT (SELECT d.endpoint FROM ductwork_deliveries d
             WHERE d.pipeline = ANY (ARRAY[$1]) AND d.endpoint > n.endpoint
             ORDER BY d.pipeline, d.endpoint LIMIT 1)
      FROM names n WHERE n.endpoint IS NOT NULL)
SELECT n.endpoint AS name FROM names n WHERE n.endpoint IS NOT NULL
