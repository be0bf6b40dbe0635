UPDATE ductwork_bulks SET ended_at = coalesce(ended_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) WHERE id = ? AND failures = ?
