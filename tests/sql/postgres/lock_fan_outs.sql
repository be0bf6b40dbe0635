SELECT id FROM ductwork_fan_outs
 WHERE id IN (SELECT b.id FROM unnest($1::uuid[]) AS b(id)) ORDER BY id DESC FOR UPDATE
