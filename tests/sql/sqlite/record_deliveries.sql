WITH free AS MATERIALIZED (
    SELECT id FROM ductwork_deliveries WHERE id IN (SELECT c0 FROM ductwork_rows(?1)) )
UPDATE ductwork_deliveries
   SET attempts = b.made + 1, due_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + b.pause, state = b.outcome, tried_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       status = b.code, error = b.reason
  FROM (SELECT c0 AS id, c1 AS made, c2 AS pause, c3 AS outcome, c4 AS code, c5 AS reason FROM ductwork_rows(?1)) AS b
 WHERE ductwork_deliveries.id = b.id AND ductwork_deliveries.id IN (SELECT id FROM free)
   AND ductwork_deliveries.due_at IS NOT NULL AND ductwork_deliveries.attempts = b.made
RETURNING ductwork_deliveries.id AS id
