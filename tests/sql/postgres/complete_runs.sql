UPDATE ductwork_runs
   SET status = 'completed', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint,
       output = (SELECT coalesce(br.output, s.output)
                   FROM ductwork_branches br JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
                  WHERE br.id = ANY (ARRAY[b.branch_id]))
  FROM unnest($1::uuid[], $2::uuid[]) AS b(id, branch_id)
 WHERE ductwork_runs.id = ANY (ARRAY[b.id]) AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
