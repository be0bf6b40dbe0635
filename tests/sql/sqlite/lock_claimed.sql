SELECT e.id FROM ductwork_executions e
 WHERE e.process_id = ?1 AND e.id IN (SELECT c0 FROM ductwork_rows(?2)) AND e.result IS NULL
 ORDER BY e.id 
