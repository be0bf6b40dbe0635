SELECT pipeline, digest, created_at FROM ductwork_definitions
 ORDER BY pipeline, created_at, digest LIMIT ?
