SELECT id FROM ductwork_fan_outs
 WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) ORDER BY id DESC 
