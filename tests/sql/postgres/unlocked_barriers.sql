SELECT f.id FROM ductwork_fan_outs f WHERE f.id = ANY ($1::uuid[]) FOR UPDATE SKIP LOCKED
