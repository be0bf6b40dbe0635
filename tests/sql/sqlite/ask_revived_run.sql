UPDATE ductwork_runs SET status = 'dampened', dampened = ?1 WHERE id = ?2
