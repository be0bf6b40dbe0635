UPDATE ductwork_steps
   SET status = b.status, output = NULL, completed_at = NULL, source_step_id = NULL
  FROM (SELECT c0 AS id, c1 AS status FROM ductwork_rows(?1)) AS b
 WHERE ductwork_steps.id = b.id
