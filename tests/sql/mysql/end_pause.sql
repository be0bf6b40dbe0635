DELETE FROM ductwork_pauses WHERE pipeline = ?
