WITH due AS MATERIALIZED (
    SELECT execution_id FROM ductwork_availabilities
     WHERE pipeline = ?1 AND due_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
       AND (due_at, execution_id) > (?2, ?3)
     ORDER BY due_at, execution_id LIMIT ?4)
DELETE FROM ductwork_availabilities
 WHERE execution_id IN (SELECT execution_id FROM due)
RETURNING execution_id AS id, due_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER) - due_at AS waited
