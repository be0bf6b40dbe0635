SELECT pipeline, reason, paused_by, paused_at FROM ductwork_pauses
 WHERE pipeline = ? FOR UPDATE
