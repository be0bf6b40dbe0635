WITH found AS (
        SELECT 'execution' AS entity, id, 'has some of process, claim time and lease, but not all' AS detail
          FROM ductwork_executions
         WHERE ((process_id IS NULL) <> (claimed_at IS NULL) OR (process_id IS NULL) <> (lease_until IS NULL))) SELECT * FROM found LIMIT ?
