DELETE FROM ductwork_reports WHERE ductwork_reports.id = ANY ($1::uuid[])
