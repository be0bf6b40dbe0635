SELECT coalesce(max(needs), 0) AS needs FROM ductwork_migrations
 WHERE version > ?
