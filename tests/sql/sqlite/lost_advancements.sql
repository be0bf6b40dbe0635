UPDATE ductwork_advancements
   SET completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), result = ?1, error_class = ?2, error_message = ?3
 WHERE ductwork_advancements.branch_id IN (SELECT c0 FROM ductwork_rows(?4)) AND process_id = ?5
   AND completed_at IS NULL
