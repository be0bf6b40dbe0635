UPDATE ductwork_transitions SET crash_count = crash_count + 1
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_transitions.branch_id = ANY (ARRAY[b.id])
   AND ductwork_transitions.completed_at IS NULL
