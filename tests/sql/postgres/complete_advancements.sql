UPDATE ductwork_advancements SET result = 'success', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[], $2::uuid[]) AS b(id, branch_id)
 WHERE ductwork_advancements.branch_id = ANY (ARRAY[b.branch_id])
   AND ductwork_advancements.id = b.id AND ductwork_advancements.completed_at IS NULL
