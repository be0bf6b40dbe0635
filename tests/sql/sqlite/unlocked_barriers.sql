SELECT f.id FROM ductwork_fan_outs f WHERE f.id IN (SELECT c0 FROM ductwork_rows(?1)) 
