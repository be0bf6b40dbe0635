WITH free AS MATERIALIZED (
    SELECT id FROM ductwork_deliveries WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) AND due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) )
UPDATE ductwork_deliveries SET due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?2
 WHERE id IN (SELECT id FROM free) RETURNING id
