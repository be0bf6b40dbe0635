UPDATE ductwork_transitions SET retry_count = retry_count + 1
 WHERE ductwork_transitions.id IN (SELECT c0 FROM ductwork_rows(?1)) AND completed_at IS NULL
