UPDATE ductwork_transitions SET via = b.via, produced = b.produced, completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT unhex(value->>0) AS id, value->>1 AS via, value->>2 AS produced FROM json_each(?1)) AS b
 WHERE ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL
