UPDATE ductwork_processes SET trouble = ?, troubled_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ? WHERE id = ?
