DELETE FROM ductwork_fan_outs WHERE ductwork_fan_outs.id IN (SELECT c0 FROM ductwork_rows(?1))
