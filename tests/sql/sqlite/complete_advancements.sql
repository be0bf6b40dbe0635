UPDATE ductwork_advancements SET result = 'success', completed_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER)
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b
 WHERE ductwork_advancements.id = b.id AND ductwork_advancements.completed_at IS NULL
