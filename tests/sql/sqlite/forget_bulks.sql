DELETE FROM ductwork_bulks WHERE ductwork_bulks.id IN (SELECT c0 FROM ductwork_rows(?1))
