INSERT INTO ductwork_series_looks (id, turn, body) VALUES (1, 0, ?)
ON DUPLICATE KEY UPDATE id = ductwork_series_looks.id
