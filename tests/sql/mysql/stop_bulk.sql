UPDATE ductwork_bulks SET ended_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), stopped_by = ? WHERE id = ? AND ended_at IS NULL
