DELETE FROM ductwork_reports WHERE ductwork_reports.id IN (SELECT c0 FROM ductwork_rows(?1))
