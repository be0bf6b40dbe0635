SELECT pipeline, reason, paused_by, paused_at FROM ductwork_pauses
 WHERE pipeline = $1 FOR NO KEY UPDATE
