UPDATE ductwork_advancements SET result = 'success', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id, c1 AS branch_id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_advancements.branch_id = b.branch_id
   AND ductwork_advancements.id = b.id AND ductwork_advancements.completed_at IS NULL
