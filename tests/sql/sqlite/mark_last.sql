UPDATE temp.results SET last = 1
 WHERE rowid IN (SELECT max(r.rowid) FROM temp.results r
                   JOIN ductwork_fan_outs f ON f.id = r.arrives_at
                  GROUP BY f.id HAVING count(*) = f.width - f.arrived)
RETURNING execution_id
