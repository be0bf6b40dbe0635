UPDATE ductwork_processes SET epoch = ? WHERE id = ? AND epoch < ?
