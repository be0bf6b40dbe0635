UPDATE ductwork_processes SET epoch = ?1 WHERE id = ?2 AND epoch < ?1
