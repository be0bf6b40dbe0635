UPDATE ductwork_transitions SET crash_count = crash_count + 1
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_transitions.branch_id = b.id
   AND ductwork_transitions.completed_at IS NULL
