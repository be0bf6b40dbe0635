DELETE FROM ductwork_series
 WHERE (pipeline, grain, at) IN (SELECT s.pipeline, s.grain, s.at FROM ductwork_series s
        WHERE s.grain = ?1 AND s.at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?2 ORDER BY s.grain, s.at LIMIT ?3)
