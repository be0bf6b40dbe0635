SELECT s.pipeline, s.grain, s.at, s.since, s.started, s.completed, s.halted, s.retries, substr(s.waited, 1, 10000) AS waited, substr(s.lasted, 1, 10000) AS lasted
  FROM ductwork_series s
 WHERE s.pipeline = ? AND s.grain = ? AND s.at >= ? AND s.at < ?
 ORDER BY s.pipeline DESC, s.grain DESC, s.at DESC LIMIT ?
