UPDATE ductwork_transitions SET retry_count = retry_count + 1
 WHERE ductwork_transitions.id = ANY ($1::uuid[]) AND completed_at IS NULL
