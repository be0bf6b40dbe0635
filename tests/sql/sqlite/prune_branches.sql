DELETE FROM ductwork_branches WHERE ductwork_branches.id IN (SELECT c0 FROM ductwork_rows(?1))
