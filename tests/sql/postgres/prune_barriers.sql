DELETE FROM ductwork_fan_outs WHERE id = ANY ($1::uuid[])
