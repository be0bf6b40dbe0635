UPDATE ductwork_advancements SET lease_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1
 WHERE ductwork_advancements.branch_id IN (SELECT c0 FROM ductwork_rows(?2)) AND process_id = ?3 AND completed_at IS NULL
