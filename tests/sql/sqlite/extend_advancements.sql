UPDATE ductwork_advancements SET lease_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1
 WHERE process_id = ?2 AND completed_at IS NULL
   AND id IN (SELECT id FROM ductwork_advancements
               WHERE process_id = ?2 AND completed_at IS NULL )
RETURNING id
