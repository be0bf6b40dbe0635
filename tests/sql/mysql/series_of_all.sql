SELECT s.pipeline, s.grain, s.at, s.since, s.started, s.completed, s.halted, s.retries,
       CASE WHEN s.at >= ? THEN substr(s.waited, 1, 10000) END AS waited,
       CASE WHEN s.at >= ? THEN substr(s.lasted, 1, 10000) END AS lasted
  FROM ductwork_series s
 WHERE s.grain = ? AND s.at >= ? AND s.at < ? ORDER BY s.grain, s.at LIMIT ?
