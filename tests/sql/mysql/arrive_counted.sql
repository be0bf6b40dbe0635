UPDATE (SELECT held.arrives_at AS id, count(*) AS n FROM ductwork_held AS held
         WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
       STRAIGHT_JOIN ductwork_fan_outs FORCE INDEX (PRIMARY)
   SET ductwork_fan_outs.arrived = ductwork_fan_outs.arrived + a.n
 WHERE ductwork_fan_outs.id = a.id
