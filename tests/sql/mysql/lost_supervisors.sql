SELECT d.id, d.role, d.pipeline, d.host, d.pid, d.version, d.started_at, d.gone_at, d.death, d.went_on_as
  FROM ductwork_departed d
 WHERE d.gone_at >= ? AND d.role = 'supervisor'
   AND d.death IS NOT NULL AND d.went_on_as IS NULL
 ORDER BY d.gone_at DESC, d.id DESC LIMIT ?
