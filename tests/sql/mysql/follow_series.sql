UPDATE ductwork_series_looks SET turn = turn + 1, body = ? WHERE id = 1 AND turn = ?
