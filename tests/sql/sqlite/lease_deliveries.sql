UPDATE ductwork_deliveries SET due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1
 WHERE id IN (SELECT c0 FROM ductwork_rows(?2)) AND due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) RETURNING id
