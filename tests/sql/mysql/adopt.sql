UPDATE ductwork_processes SET supervisor_id = ? WHERE id = ? AND supervisor_id = ?
