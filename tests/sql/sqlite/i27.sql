WITH found AS MATERIALIZED (
        SELECT 'process' AS entity, id, 'has a heartbeat from the future' AS detail
          FROM ductwork_processes WHERE last_heartbeat_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?1) SELECT * FROM found LIMIT ?2
