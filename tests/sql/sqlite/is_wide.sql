SELECT 1 AS found FROM ductwork_branches WHERE run_id = ?1 LIMIT 1 OFFSET ?2
