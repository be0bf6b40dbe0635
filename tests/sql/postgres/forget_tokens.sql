DELETE FROM ductwork_tokens WHERE ductwork_tokens.id = ANY ($1::text[])
