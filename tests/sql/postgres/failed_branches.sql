UPDATE ductwork_branches SET ready_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_branches.id = ANY (ARRAY[b.id]) AND ductwork_branches.status = 'in_progress'
