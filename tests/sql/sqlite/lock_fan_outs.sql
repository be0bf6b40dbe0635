SELECT id FROM ductwork_fan_outs
 WHERE id IN (SELECT b.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b) ORDER BY id DESC 
