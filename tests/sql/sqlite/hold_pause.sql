INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at)
VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (pipeline) DO UPDATE SET paused_at = ductwork_pauses.paused_at
RETURNING pipeline, reason, paused_by, paused_at
