UPDATE ductwork_branches
   SET ready_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint + CASE WHEN ductwork_branches.ready_at > w.since
                               THEN ductwork_branches.ready_at - w.since ELSE 0 END,
       last_advanced_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM (SELECT br.id, CASE WHEN t.id IS NULL THEN s.completed_at
                           ELSE br.last_advanced_at END AS since
          FROM ductwork_branches br
          JOIN ductwork_steps s ON s.id = br.step_id
          LEFT JOIN ductwork_transitions t
            ON t.from_step_id = br.step_id AND t.completed_at IS NULL
         WHERE br.ready_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint) w
 WHERE ductwork_branches.id = w.id AND ductwork_branches.ready_at > (extract(epoch from statement_timestamp()) * 1000000)::bigint
   AND w.since > (extract(epoch from statement_timestamp()) * 1000000)::bigint
RETURNING ductwork_branches.id AS id
