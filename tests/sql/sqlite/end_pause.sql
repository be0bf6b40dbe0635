DELETE FROM ductwork_pauses WHERE pipeline = ?1
RETURNING pipeline, reason, paused_by, paused_at
