UPDATE ductwork_runs SET status = 'halted', halted_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_runs.id = ANY (ARRAY[b.id]) AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened')
