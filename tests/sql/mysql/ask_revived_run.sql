UPDATE ductwork_runs SET status = 'dampened', dampened = ? WHERE id = ?
