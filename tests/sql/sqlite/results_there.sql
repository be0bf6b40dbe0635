SELECT e.id FROM ductwork_executions e WHERE e.id IN (SELECT c0 FROM ductwork_rows(?1))
