UPDATE ductwork_bulks
   SET dealt = ?, skipped = skipped + ?, failed = failed + ?, failures = ?
 WHERE id = ? AND ended_at IS NULL AND dealt < ? AND failures = ?
