INSERT INTO ductwork_series_looks (id, turn, body) VALUES (1, 0, $1)
ON CONFLICT (id) DO NOTHING
