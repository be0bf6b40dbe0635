SELECT m.body, p.host, p.role, p.pipeline, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now FROM ductwork_metrics m
  LEFT JOIN ductwork_processes p ON p.id = m.process_id
 ORDER BY m.process_id
