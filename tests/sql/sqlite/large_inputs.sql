SELECT s.id, s.input FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b JOIN ductwork_steps s ON s.id = b.id
