DELETE FROM ductwork_fan_outs WHERE branch_id IN (SELECT c0 FROM ductwork_rows(?1))
