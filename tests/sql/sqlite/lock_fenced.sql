SELECT br.id FROM ductwork_branches br
 WHERE br.id IN (SELECT b.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b) ORDER BY br.id 
