SELECT br.id FROM ductwork_branches br
 WHERE br.id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id)) ORDER BY br.id FOR NO KEY UPDATE
