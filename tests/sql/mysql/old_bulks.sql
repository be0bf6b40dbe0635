SELECT x.id FROM (SELECT k.id, k.ended_at FROM ductwork_bulks k ORDER BY k.id LIMIT ?) x
 WHERE x.ended_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
