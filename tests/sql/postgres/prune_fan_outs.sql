DELETE FROM ductwork_fan_outs WHERE branch_id = ANY ($1::uuid[])
