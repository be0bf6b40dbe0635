SELECT execution_id AS id, due_at,
       (SELECT 1 FROM ductwork_availabilities
         WHERE pipeline = ? AND due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
           AND due_at >= ? AND (due_at > ? OR execution_id > ?)
         ORDER BY due_at, execution_id LIMIT 1 OFFSET ?) AS reaches
  FROM ductwork_availabilities
 WHERE pipeline = ? AND due_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND due_at >= ? AND (due_at > ? OR execution_id > ?)
 ORDER BY due_at, execution_id LIMIT 1 OFFSET ?
