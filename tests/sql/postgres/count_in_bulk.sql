UPDATE ductwork_bulks SET dealt = $1, done = done + 1
 WHERE id = $2 AND ended_at IS NULL AND dealt < $1
