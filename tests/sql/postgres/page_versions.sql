SELECT digest, created_at FROM ductwork_definitions
 WHERE pipeline = $1 ORDER BY created_at DESC, digest DESC LIMIT $2
