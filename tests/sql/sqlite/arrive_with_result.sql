UPDATE ductwork_fan_outs SET arrived = arrived + a.n
  FROM (SELECT held.arrives_at AS id, count(*) AS n FROM batch_held(?1) AS held
         WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
 WHERE ductwork_fan_outs.id = a.id
