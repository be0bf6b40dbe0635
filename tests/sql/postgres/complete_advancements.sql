UPDATE ductwork_advancements SET result = 'success', completed_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
  FROM unnest($1::uuid[]) AS b(id)
 WHERE ductwork_advancements.id = ANY (ARRAY[b.id]) AND ductwork_advancements.completed_at IS NULL
