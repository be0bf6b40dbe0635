UPDATE ductwork_steps
   SET status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
       output = held.output, completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM batch_held(?1) AS held
 WHERE ductwork_steps.id = held.step_id
   AND held.step_status IS NOT NULL
   AND ductwork_steps.status = 'in_progress'
