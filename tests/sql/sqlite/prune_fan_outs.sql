DELETE FROM ductwork_fan_outs WHERE ductwork_fan_outs.branch_id IN (SELECT c0 FROM ductwork_rows(?1))
