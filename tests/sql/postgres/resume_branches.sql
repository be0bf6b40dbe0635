UPDATE ductwork_branches SET status = 'in_progress', ready_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[]) AS b(branch_id, step_id)
 WHERE ductwork_branches.id = ANY (ARRAY[b.branch_id]) AND ductwork_branches.step_id = b.step_id
   AND ductwork_branches.status = 'dampened'
