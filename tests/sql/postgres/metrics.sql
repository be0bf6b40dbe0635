SELECT m.body, p.host, p.role, p.pipeline, (extract(epoch from statement_timestamp()) * 1000000)::bigint AS now FROM ductwork_metrics m
  LEFT JOIN ductwork_processes p ON p.id = m.process_id
 ORDER BY m.process_id
