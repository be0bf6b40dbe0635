UPDATE ductwork_transitions SET crash_count = crash_count + 1
  FROM (SELECT unhex(value->>0) AS id FROM json_each(?1)) AS b
 WHERE ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL
