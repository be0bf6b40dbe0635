SELECT substr(p.pipeline, 1, 1000) AS pipeline, substr(p.reason, 1, 1000) AS reason,
       substr(p.paused_by, 1, 1000) AS paused_by, p.paused_at
  FROM ductwork_pauses p ORDER BY p.pipeline
