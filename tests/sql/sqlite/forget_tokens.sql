DELETE FROM ductwork_tokens WHERE ductwork_tokens.id IN (SELECT c0 FROM ductwork_rows(?1))
