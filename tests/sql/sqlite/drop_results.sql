DELETE FROM temp.results WHERE execution_id IN (SELECT b.id FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b)
