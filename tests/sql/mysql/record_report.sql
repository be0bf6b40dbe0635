INSERT INTO ductwork_reports (id, kind, at, ok, figures) VALUES (?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?)
