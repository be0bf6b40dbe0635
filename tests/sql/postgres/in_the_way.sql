SELECT a.pid::bigint AS pid, a.application_name AS name,
       coalesce(a.state, 'unknown') AS state, left(a.query, 80) AS query,
       CAST(extract(epoch FROM clock_timestamp() - a.xact_start) AS bigint) AS seconds
  FROM pg_stat_activity a
 WHERE a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
   AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                WHERE l.pid = a.pid AND l.granted
                  AND c.relname LIKE 'ductwork%' AND pg_table_is_visible(c.oid))
 ORDER BY a.xact_start LIMIT 1
