UPDATE ductwork_branches
   SET status = 'in_progress', output = NULL,
       ready_at = CASE WHEN b.ready = 1 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END
  FROM (SELECT unhex(value->>0) AS id, value->>1 AS ready FROM json_each(?1)) AS b
 WHERE ductwork_branches.id = b.id
