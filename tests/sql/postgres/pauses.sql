SELECT p.pipeline, p.reason, p.paused_by, p.paused_at FROM ductwork_pauses p ORDER BY p.pipeline
