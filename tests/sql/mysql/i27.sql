WITH found AS (
        SELECT 'process' AS entity, id, 'has a heartbeat from the future' AS detail
          FROM ductwork_processes WHERE last_heartbeat_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?) SELECT * FROM found LIMIT ?
