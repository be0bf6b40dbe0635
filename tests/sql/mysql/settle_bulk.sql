UPDATE ductwork_bulks
   SET done = done + ?, skipped = skipped + ?, failed = failed - ? - ?,
       failures = ?
 WHERE id = ? AND ended_at IS NULL AND failures = ?
