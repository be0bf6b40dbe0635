SELECT m.body, p.host, p.role, p.pipeline, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now FROM ductwork_metrics m
  LEFT JOIN ductwork_processes p ON p.id = m.process_id
 ORDER BY m.process_id
