WITH due AS MATERIALIZED (
    SELECT q.execution_id FROM ductwork_availabilities q
     WHERE q.pipeline = $1 AND q.due_at <= (extract(epoch from statement_timestamp()) * 1000000)::bigint
       AND (q.due_at, q.execution_id) > ($2, $3)
       AND q.execution_id NOT IN (SELECT x.id FROM unnest($4::uuid[]) AS x(id))
       AND (SELECT r.definition FROM ductwork_executions e
              JOIN ductwork_steps s ON s.id = e.step_id
              JOIN ductwork_runs r ON r.id = s.run_id
             WHERE e.id = q.execution_id) NOT IN (SELECT a.digest FROM unnest($5::text[]) AS a(digest))
     ORDER BY q.due_at, q.execution_id LIMIT $6 FOR UPDATE SKIP LOCKED)
DELETE FROM ductwork_availabilities
 WHERE execution_id = ANY (ARRAY(SELECT execution_id FROM due))
RETURNING execution_id AS id, due_at, (extract(epoch from statement_timestamp()) * 1000000)::bigint - due_at AS waited
