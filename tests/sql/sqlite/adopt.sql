UPDATE ductwork_processes SET supervisor_id = ?1 WHERE id = ?2 AND supervisor_id = ?3
