SELECT digest, created_at FROM ductwork_definitions
 WHERE pipeline = ? ORDER BY created_at DESC, digest DESC LIMIT ?
