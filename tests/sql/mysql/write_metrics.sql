UPDATE ductwork_metrics SET written_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), body = ? WHERE process_id = ?
