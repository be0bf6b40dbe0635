DELETE FROM ductwork_departed WHERE ductwork_departed.id IN (SELECT c0 FROM ductwork_rows(?1))
