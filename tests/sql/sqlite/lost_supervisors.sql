SELECT d.id, d.role, d.pipeline, d.host, d.pid, d.version, d.started_at, d.gone_at, d.death
  FROM ductwork_departed d
 WHERE d.gone_at >= ?1 AND d.role = 'supervisor'
   AND d.death NOT LIKE '%; it lives, and went on as %'
 ORDER BY d.gone_at DESC, d.id DESC LIMIT ?2
