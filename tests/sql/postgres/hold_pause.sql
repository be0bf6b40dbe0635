INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT (pipeline) DO UPDATE SET holds = ductwork_pauses.holds + 1
