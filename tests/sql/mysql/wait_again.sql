UPDATE ductwork_branches SET status = 'waiting', output = NULL WHERE id = ?
