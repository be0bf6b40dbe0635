DELETE FROM ductwork_fan_outs WHERE ductwork_fan_outs.id = ANY ($1::uuid[])
