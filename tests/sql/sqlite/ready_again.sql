UPDATE ductwork_branches SET ready_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) WHERE ready_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1 RETURNING id
