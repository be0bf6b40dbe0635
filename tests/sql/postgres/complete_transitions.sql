UPDATE ductwork_transitions SET via = b.via, produced = b.produced, completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b(id, via, produced)
 WHERE ductwork_transitions.id = ANY (ARRAY[b.id]) AND ductwork_transitions.completed_at IS NULL
