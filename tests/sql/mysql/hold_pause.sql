INSERT INTO ductwork_pauses (pipeline, reason, paused_by, paused_at)
VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE holds = ductwork_pauses.holds + 1
