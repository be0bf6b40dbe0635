SELECT l.turn, l.body FROM ductwork_series_looks l WHERE l.id = 1
