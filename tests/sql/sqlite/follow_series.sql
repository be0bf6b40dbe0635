UPDATE ductwork_series_looks SET turn = turn + 1, body = ?1 WHERE id = 1 AND turn = ?2
