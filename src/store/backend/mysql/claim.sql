-- Claims executions: one statement after another, in one transaction.

-- name: DUE_AVAILABILITIES
-- absent: TAKE_AVAILABILITIES.3: it is there in two parts, for the reason that follows.
-- A row that is locked belongs to somebody else. Rows that were taken before are skipped by their place, whose
-- first part is tested twice: the server looks up no pair by an index. They are deleted by id afterwards: a DELETE
-- that looks for the first rows itself locks those that it scans, and runs into those of others.
SELECT execution_id AS id, due_at, {now} - due_at AS waited FROM ductwork_availabilities
 WHERE pipeline = :pipeline AND due_at <= {now}
   AND due_at >= :behind AND (due_at > :behind OR execution_id > :behind_id)
 ORDER BY due_at, execution_id LIMIT :n {skip_locked}

-- name: LATER_DUE
-- The last execution that is skipped, and whether as many as are wanted come after it. It locks nothing: a lock on a
-- row that this claim leaves would let the claim of another node undo this one.
SELECT execution_id AS id, due_at,
       (SELECT 1 FROM ductwork_availabilities
         WHERE pipeline = :pipeline AND due_at <= {now}
           AND due_at >= :behind AND (due_at > :behind OR execution_id > :behind_id)
         ORDER BY due_at, execution_id LIMIT 1 OFFSET :end) AS reaches
  FROM ductwork_availabilities
 WHERE pipeline = :pipeline AND due_at <= {now}
   AND due_at >= :behind AND (due_at > :behind OR execution_id > :behind_id)
 ORDER BY due_at, execution_id LIMIT 1 OFFSET :last

-- name: DUE_READABLE
-- absent: TAKE_READABLE.3: likewise.
SELECT q.execution_id AS id, q.due_at, {now} - q.due_at AS waited FROM ductwork_availabilities q
 WHERE q.pipeline = :pipeline AND q.due_at <= {now}
   AND q.due_at >= :behind AND (q.due_at > :behind OR q.execution_id > :behind_id)
   AND q.execution_id NOT IN (SELECT x.id FROM {rows:x(id id)})
   AND (SELECT r.definition FROM ductwork_executions e
          JOIN ductwork_steps s ON s.id = e.step_id
          JOIN ductwork_runs r ON r.id = s.run_id
         WHERE e.id = q.execution_id) NOT IN (SELECT a.digest FROM {rows:a(digest text)})
 ORDER BY q.due_at, q.execution_id LIMIT :n {skip_locked}

-- name: REMOVE_AVAILABILITIES
{delete:ductwork_availabilities;b(id id)} WHERE {of:ductwork_availabilities.execution_id;b(id id)}

-- name: ALL_REMOVED
{whole:ROW_COUNT();:count}

-- name: ALL_STAMPED
{whole:ROW_COUNT();:count}
