UPDATE ductwork_bulks SET dealt = ?, done = done + 1
 WHERE id = ? AND ended_at IS NULL AND dealt < ?
