WITH found AS MATERIALIZED (
        SELECT 'process' AS entity, id, 'has a heartbeat from the future' AS detail
          FROM ductwork_processes WHERE last_heartbeat_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint + $1) SELECT * FROM found LIMIT $2
