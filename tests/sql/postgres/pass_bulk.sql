UPDATE ductwork_bulks
   SET dealt = $1, skipped = skipped + $2, failed = failed + $3, failures = $4
 WHERE id = $5 AND ended_at IS NULL AND dealt < $1 AND failures = $6
