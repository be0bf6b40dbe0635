SELECT 1 AS found FROM ductwork_branches WHERE run_id = ? LIMIT 1 OFFSET ?
