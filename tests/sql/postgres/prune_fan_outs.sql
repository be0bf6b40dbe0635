DELETE FROM ductwork_fan_outs WHERE ductwork_fan_outs.branch_id = ANY ($1::uuid[])
