SELECT id FROM ductwork_runs
 WHERE id >= $1 AND id < $2
   AND (replace(id::text, '-', '') LIKE '%' || $3 OR substr(replace(id::text, '-', ''), 25) LIKE $3 || '%')
 ORDER BY id DESC LIMIT $4
