UPDATE ductwork_transitions SET via = b.kind, produced = b.steps, completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) AS b(id, branch_id, kind, steps)
 WHERE ductwork_transitions.branch_id = ANY (ARRAY[b.branch_id])
   AND ductwork_transitions.id = b.id AND ductwork_transitions.completed_at IS NULL
