SELECT digest, pipeline, body, created_at FROM ductwork_definitions WHERE digest = ?
