SELECT x.id FROM (SELECT k.id, k.ended_at FROM ductwork_bulks k ORDER BY k.id LIMIT ?1) x
 WHERE x.ended_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2
