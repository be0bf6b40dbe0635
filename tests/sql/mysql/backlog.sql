SELECT count(*) AS n FROM (
    SELECT 1 FROM ductwork_availabilities
     WHERE pipeline = ? AND due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) LIMIT ?) x
