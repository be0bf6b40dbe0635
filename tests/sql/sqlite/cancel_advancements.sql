UPDATE ductwork_advancements SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = 'cancelled'
 WHERE ductwork_advancements.branch_id IN (SELECT c0 FROM ductwork_rows(?1)) AND completed_at IS NULL
