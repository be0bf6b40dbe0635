UPDATE ductwork_bulks
   SET done = done + $1, skipped = skipped + $2, failed = failed - $1 - $2,
       failures = $3
 WHERE id = $4 AND ended_at IS NULL AND failures = $5
