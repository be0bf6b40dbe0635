SELECT id FROM ductwork_fan_outs
 WHERE id = ANY ($1::uuid[]) ORDER BY id DESC FOR NO KEY UPDATE
