SELECT min(due_at) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS wait FROM ductwork_availabilities WHERE pipeline = ?
