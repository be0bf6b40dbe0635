SELECT body FROM ductwork_definitions WHERE digest = ?
